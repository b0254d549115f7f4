"""The configuration: layers, defaults, and mistakes that name their key."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kevin.core import protocol
from kevin.core.config import Study, load_study, merge, section_digest, validate_study
from kevin.core.config.layers import REMOVED, as_now, read_layer
from kevin.core.errors import ConfigError, UsageError
from kevin.core.identity import with_defaults
from kevin.core.protocol import PROTOCOL_VERSION, JudgeProtocol
from kevin.core.types import canonical_json, digest

MINIMAL = {"policies": {"base": {"model": "results/base_model"}}}
trees = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
layers = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


def study(**changes):
    return validate_study({**MINIMAL, **changes}, "test")


def write(path, value):
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


def test_layers_win_in_order(tmp_path):
    base = write(tmp_path / "a.yaml", {**MINIMAL, "seed": 1, "rollout": {"num_turns": 8, "temperature": 0.5}})
    overlay = write(tmp_path / "b.yaml", {"rollout": {"num_turns": 2}})
    loaded = load_study([base, overlay])
    assert (loaded.seed, loaded.rollout.num_turns, loaded.rollout.temperature) == (1, 2, 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sede": 1}, "sede: unknown key; is seed meant?"),
        ({"rollout": {"num_turn": 4}}, "rollout.num_turn: unknown key; is num_turns meant?"),
        ({"judge": {"timing": {"budget": 1}}}, "judge.timing.budget: unknown key; is budget_s meant?"),
        ({"judge": {"timing": {"colour": 1}}}, "judge.timing.colour: unknown key\n"),
        ({"policies": {"base": {"model": "m", "modell": "m"}}}, "policies.base.modell: unknown key; is model meant?"),
        ({"policies": {"base": {}}}, "policies.base.model: Field required"),
        ({"rollout": {"num_turns": 0}}, "rollout.num_turns: Input should be greater than or equal to 1"),
        ({"rollout": {"temperature": "hot"}}, "rollout.temperature: .*number"),
        ({"reward": {"returns": "mean"}}, "reward.returns: .*'sum' or 'max'"),
        ({"evaluate": ["base", "kevin"]}, "\n  evaluate names policies that are not defined: kevin"),
        ({"runs": {"r": {"train": {"num_turns": 0}}}}, "\n  runs.r.train.num_turns: Input should be greater than or"),
        ({"runs": {"r": {"reward": {"gama": 1}}}}, "\n  runs.r.reward.gama: unknown key; is gamma meant?"),
        ({"train": {"kl_beta": 1, "first_turn_kl": 1}}, "\n  train: kl_beta holds all turns and first_turn_kl"),
        ({"language": "cuda"}, "language: there is no such key any more; it follows from judge.device"),
        ({"train": {"split": "level1"}}, "train.split: there is no such key any more; training is on"),
        (
            {"runs": {"r": {"train": {"clip_low": 0.1}}}},
            "runs.r.train.clip_low: there is no such key any more; .*CLIP_LOW",
        ),
        ({"base_model": {"second_school": {}}}, "base_model.second_school: .*base_model.pretraining"),
        ({"search": {"strategies": {"b": {"num_kept": 2}}}}, "search.strategies.b.num_kept: .*a quarter goes on"),
        (
            {"search": {"strategies": {"b": {"rollout": {"num_trajectories": 2}}}}},
            r"search.strategies.b.rollout.num_trajectories: it follows",
        ),
        ({"search": {"strategies": {"b": {"rollout": {"num_turn": 2}}}}}, "search.strategies.b.rollout.num_turn"),
        ({"search": {"strategies": {"b": {"method": "luck"}}}}, "search.strategies.b.method"),
        ({"runs": {"r": {"train": {"init": "nobody"}}}}, "init names a policy"),
        (
            {"judge": {"precision": "bfloat16"}},
            "judge.precision: .*only float32 is judged.*--tolerance 1e-2",
        ),
        ({"judge": {"version": 3}}, f"judge.version: .*by version {PROTOCOL_VERSION}, not 3: leave the key out"),
        ({"results": "a{b}"}, r"results: 'a\{b\}' cannot be a folder here"),
        ({"results": "~/mine"}, "results: '~/mine': only a shell knows"),
        ({"policies": {"a/b": {"model": "m"}}}, "policies: 'a/b' becomes a file's name"),
        ({"policies": {"-": {"model": "m"}}}, "policies: '-' becomes a file's name"),
        ({"policies": {"a'b": {"model": "m"}}}, "policies: \"a'b\" becomes a file's name"),
        ({"policies": {"é" * 51: {"model": "m"}}}, "policies: 'é+' becomes a file's name; 100 bytes"),
        ({"train": {"learning_rate": math.inf}}, "train.learning_rate: .*finite number"),
        ({"judge": {"atol": math.nan}}, "judge.atol: .*finite number"),
        ({"runs": {"r": {"train": {"learning_rate": math.inf}}}}, "runs.r.train.learning_rate: .*finite number"),
        ({"judge": {"num_trials": True}}, "judge.num_trials: a number is wanted, and this is true"),
        ({"reward": {"speedup_cap": True}}, "reward.speedup_cap: a number is wanted, and this is true"),
        ({"judge": {"timing": {"min_rounds": 9, "max_rounds": 8}}}, "judge.timing: min_rounds: 9 are more than"),
        ({"base_model": {"hidden_size": 128, "num_heads": 3}}, "base_model: hidden_size: 128 is no multiple of 6"),
        ({"seed": -1}, "seed: .*greater than or equal to 0"),
        ({"evaluate": []}, "evaluate: it names no policy"),
        ({"evaluate": ["base", "base"]}, "evaluate names base twice"),
        (
            {"tasks": {"num_train": 0, "num_eval_level1": 0, "num_eval_level2": 0}},
            "tasks: there are no tasks: num_train,",
        ),
    ],
)
def test_a_mistake_names_its_key_and_file(changes, words):
    with pytest.raises(ConfigError, match=rf"(?s)^my\.yaml: .*{words}"):
        validate_study({**MINIMAL, **changes}, "my.yaml")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "seed: 1\njudge:\n  num_trials: 2\n  num_trials: 3\n", "line 4: num_trials is set a second time"),
        ("a.json", '{"seed": 1, "judge": {"atol": 1, "atol": 2}}', "atol is set a second time"),
        ("a.yaml", "{{folder}}: 1\n", "not valid YAML: .*unhashable"),
        ("a.yaml", "seed: 1\n", "there are no policies in it; .*: -c config/config.yaml -c .*a.yaml"),
    ],
)
def test_a_file_that_says_too_much_or_too_little_is_named(tmp_path, name, text, words):
    with pytest.raises(ConfigError, match=rf"(?s){name}: {words}"):
        load_study([write(tmp_path / name, text)])


def test_a_file_is_laid_over_one_before_it(tmp_path):
    base, over = write(tmp_path / "gpu.yaml", MINIMAL), write(tmp_path / "quick.yaml", {"over": "gpu.yaml", "seed": 3})
    last = write(tmp_path / "last.yaml", {"over": "quick.yaml", "seed": 4})
    assert load_study([base, over, last]).seed == 4
    for order in ([over], [over, base], [base, last], [base, last, over]):
        with pytest.raises(
            ConfigError, match=r"is laid over \w+.yaml, and says nothing without it: name .*yaml before"
        ):
            load_study(order)


def test_equal_keys_of_other_mappings_and_of_anchors_are_no_mistake(tmp_path):
    path = write(tmp_path / "a.yaml", "a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3, 1: 4, '1': 5}\n")
    assert read_layer(path)["c"] == {"x": 3, "y": 1, 1: 4, "1": 5}


def test_who_only_judges_needs_no_policies(tmp_path):
    path = write(tmp_path / "a.yaml", {"judge": {"num_trials": 2}})
    assert load_study([path], plays=False).judge.num_trials == 2


def test_a_resolved_configuration_can_be_read_again(tmp_path):
    resolved = study().model_dump(mode="json")
    assert resolved["judge"]["version"] == PROTOCOL_VERSION
    assert load_study([write(tmp_path / "config.yaml", resolved)]) == study()


def test_a_removed_key_that_says_what_is_always_so_is_read():
    old = {
        "language": "cuda",
        "judge": {"device": "cuda", "max_output_kb": 64},
        "tasks": {"size": "gpu"},
        "train": {"clip_low": 0.2, "num_steps": 3},
        "runs": {"r": {"train": {"weight_decay": 0.0}, "rollout": {"history": {"num_best": 3}}}},
        "base_model": {"second_school": None, "ways": {"mend": 3.0}},
    }
    new = study(judge={"device": "cuda"}, train={"num_steps": 3}, runs={"r": {"rollout": {"history": {}}}})
    assert study(**old) == new and (new.language, new.task_size) == ("cuda", "gpu")


def test_every_removed_key_is_gone_and_says_what_is_in_its_place():
    known = set(_leaves(study(runs={"r": {}}, search={"strategies": {"s": {}}}).model_dump(mode="json")))
    for key, removed in REMOVED.items():
        assert key not in known and not removed.instead.endswith("."), key


def test_saved_settings_are_compared_without_what_is_always_so():
    saved = {"train": {"clip_low": 0.2, "prune_keep": 9}, "judge": {"max_output_kb": 64}}
    assert as_now(saved) == {"train": {"prune_keep": 9}, "judge": {}}
    assert with_defaults({**saved, "language": "cpp"}, {"train": {"seed": 0}}) == {
        "train": {"seed": 0, "prune_keep": 9},
        "judge": {},
        "language": "cpp",
    }


def _leaves(tree, head=""):
    for name, value in tree.items():
        yield f"{head}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{head}{name}.")


def test_what_removed_keys_of_the_judge_said_is_in_its_digest():
    """As in the digests of verdicts that are stored."""
    keys = JudgeProtocol().model_dump(mode="json")
    keys |= {"precision": "float32", "call_slowdown": 300.0, "inline_build_timeout_s": 180.0, "max_output_kb": 64}
    assert JudgeProtocol().digest == digest("protocol", canonical_json(keys))


def test_what_changes_a_verdict_on_a_gpu_alone_leaves_those_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {device: JudgeProtocol(device=device).digest for device in ("cpu", "cuda")}
    monkeypatch.setattr(protocol, "GPU_REVISION", 99)
    assert JudgeProtocol(device="cpu").digest == before["cpu"]
    assert JudgeProtocol(device="cuda").digest != before["cuda"]
    assert JudgeProtocol(device="cuda").identity["gpu_revision"] == 99, "nor are finished rollouts taken again"


def test_a_run_is_a_policy_of_its_name_played_as_what_it_is_trained_from():
    base = {"backend": "vllm", "model": "<results>/base_model", "draft_tokens": 16, "max_prompt_tokens": 99}
    runs = {"r": {}, "named": {}, "other": {"train": {"init": "named"}}}
    made = study(policies={"base": base, "named": {"label": "mine", "backend": "transformers"}}, runs=runs).policies
    assert (made["r"].model, made["r"].backend, made["r"].draft_tokens) == ("results/policies/r", "vllm", 16)
    assert made["r"].max_prompt_tokens is None, "what it has by training is not written twice"
    assert (made["named"].label, made["named"].backend, made["named"].draft_tokens) == ("mine", "transformers", 0)
    assert made["other"].backend == "transformers"
    shown = study(policies={"base": base, "shown": {"model": "results/policies/r"}}, runs={"r": {}})
    assert list(shown.policies) == ["base", "shown"], "one of another name is enough"


def test_tables_are_made_by_a_configuration_of_another_judge(tmp_path):
    path = write(tmp_path / "config.yaml", {**MINIMAL, "judge": {"version": 3}, "train": {"clip_low": 0.1}})
    assert load_study([path], judges=False) == validate_study(MINIMAL, "my.yaml")
    with pytest.raises(ConfigError, match=r"judge.version: .*not 3"):
        load_study([path])


def test_every_mistake_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        study(sede=1, rollout={"num_turns": 0})
    assert "sede" in str(caught.value)
    assert "rollout.num_turns" in str(caught.value)
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1\n- 2\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("[" * 3000, "its values stand too deep"),
        (f"seed: {'1' * 5000}", "Exceeds the limit"),
        ("label: 2024-99-99", "month must be"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, words):
    with pytest.raises(ConfigError, match=f"broken.yaml: {words}"):
        load_study([write(tmp_path / "broken.yaml", text)])


def test_a_layer_may_be_json_with_tabs(tmp_path):
    own = write(tmp_path / "own.json", json.dumps({**MINIMAL, "seed": 3}, indent="\t"))
    assert load_study([own]).seed == 3
    with pytest.raises(ConfigError, match=r"own\.json: not valid JSON"):
        load_study([write(own, "{")])


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: no such configuration file"):
        load_study([tmp_path / "none.yaml"])
    with pytest.raises(ConfigError, match="cannot be read"):
        load_study([tmp_path])


@given(layers)
def test_merging_nothing_changes_nothing(tree):
    assert merge(tree, {}) == tree
    assert merge({}, tree) == tree
    assert merge(tree, tree) == tree


@given(layers, layers)
def test_merging_leaves_its_arguments_alone(a, b):
    before = repr((a, b))
    merge(a, b)
    assert repr((a, b)) == before


@given(layers, layers)
def test_every_leaf_of_the_overlay_is_in_the_result(a, b):
    def leaves(tree, path=()):
        for k, v in tree.items():
            if isinstance(v, dict):
                yield from leaves(v, (*path, k))
            else:
                yield (*path, k), v

    merged = dict(leaves(merge(a, b)))
    assert all(merged[path] == value for path, value in leaves(b))


def test_digests_follow_the_values():
    assert study().digest == study().digest == study(seed=0).digest
    assert study().digest != study(seed=1).digest
    assert section_digest(study().rollout) != section_digest(study(rollout={"num_turns": 2}).rollout)


@pytest.mark.parametrize("seed_of", ["nobody", "b"])
def test_a_seed_is_of_a_policy_that_has_seeds(seed_of: str) -> None:
    policies = {"a": {"model": "x", "seed_of": seed_of}, "b": {"model": "x", "seed_of": "c"}, "c": {"model": "x"}}
    with pytest.raises(ValidationError, match=f"policies.a.seed_of: {seed_of} is no policy with seeds of its own"):
        Study(policies=policies, evaluate=("c",))


def test_strategies_that_are_compared_are_defined() -> None:
    strategies = {"parallel": {"rollout": {"num_turns": 1}}, "serial": {}}
    assert study(search={"strategies": strategies}).search.names == ["parallel", "serial"]
    assert study(search={"strategies": strategies, "compared": ["serial"]}).search.names == ["serial"]
    with pytest.raises(ConfigError, match=r"search\.compared names strategies that are not defined: luck"):
        study(search={"strategies": strategies, "compared": ["serial", "luck"]})


def test_own_models_follow_the_folder_of_results():
    policies = {
        "base": {"model": "<results>/base_model"},
        "trained": {"model": "<results>/policies/r"},
        "other": {"model": "results/base_model"},
    }
    moved = study(results="elsewhere/my results/", policies=policies, runs={"r": {}})
    assert moved.policies["base"].model == "elsewhere/my results/base_model"
    assert moved.is_base_model("base") and not moved.is_base_model("other")
    assert (moved.made_by("trained"), moved.made_by("base")) == ("r", None)
    assert Study.model_validate(moved.model_dump(mode="json")) == moved


def test_a_run_may_be_trained_without_rules_and_is_measured_as_all_are():
    loaded = study(runs={"free": {"judge": {"rules": []}}, "plain": {}})
    assert loaded.for_run("free").judge.rules == () and loaded.for_run("plain").judge == loaded.judge
    assert loaded.for_run("free").judge.model_copy(update={"rules": loaded.judge.rules}) == loaded.judge
    with pytest.raises(ConfigError, match=r"runs.free.judge: only rules here, not num_trials"):
        study(runs={"free": {"judge": {"num_trials": 1}}})
    with pytest.raises(ConfigError, match=r"runs\.free\.judge\.rules"):
        study(runs={"free": {"judge": {"rules": ["no_such_rule"]}}})


def test_an_audit_compares_runs_without_rules_with_their_twins():
    free, gamma = {"judge": {"rules": []}}, {"reward": {"gamma": 0.8}}
    loaded = study(runs={"plain": {}, "gamma": gamma, "gamma_free": {**gamma, **free}, "other": {"train": {"seed": 1}}})
    assert loaded.audited == ["gamma", "gamma_free"]
    assert study(runs={"plain": {}, "free": free, "gamma": gamma}).audited == ["plain", "free"]
    assert study(runs={"plain": {}, "gamma": gamma}).audited == ["plain", "gamma"]
    assert study().audited == []


# --- ways to spend the same kernels -------------------------------------------------------------------------------


def strategies(**named):
    return study(rollout={"num_trajectories": 16, "num_turns": 8}, search={"strategies": named})


@pytest.mark.parametrize(
    ("rollout", "shape"), [({}, (16, 8)), ({"num_turns": 1}, (128, 1)), ({"num_turns": 128}, (1, 128))]
)
def test_every_strategy_spends_the_same_kernels(rollout, shape):
    own = strategies(mine={"rollout": rollout}).for_strategy("base", "mine").rollout
    assert (own.num_trajectories, own.num_turns) == shape


def test_keys_are_laid_over_those_of_the_study():
    study = strategies(mine={"rollout": {"history": {"view": "best_and_worst"}, "temperature": 0.3}})
    own = study.for_strategy("base", "mine").rollout
    assert (own.history.view, own.temperature) == ("best_and_worst", 0.3)
    assert study.rollout.history.view == "all"


def test_kernels_that_do_not_divide_and_unknown_names():
    study = strategies(mine={"rollout": {"num_turns": 7}})
    with pytest.raises(ConfigError, match="128 kernels a task cannot be spent on trajectories of 7 turns"):
        study.for_strategy("base", "mine")
    with pytest.raises(ConfigError, match=r"no strategy .other.*there are mine"):
        study.for_strategy("base", "other")
