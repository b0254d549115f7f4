"""Keys for GPUs of other sizes, and the sentence that refuses a training which will not fit."""

from pathlib import Path

import pytest

from kevin.core.config import load_study
from kevin.core.errors import DeviceError
from kevin.train.architecture import architecture
from kevin.train.bill import adapter_parameters, assumptions, make_bill
from kevin.train.fit import SIZES, check_memory, fitting_keys, table, with_keys

CONFIG = Path(__file__).parents[3] / "config"
CODER = [CONFIG / "config.yaml", CONFIG / "coder.yaml"]


@pytest.fixture(scope="module")
def coder():
    return load_study(CODER).for_run("rl_multi")


def test_an_adapter_s_numbers_by_hand(coder):
    """Rank 32 of Qwen2.5-Coder-7B: what peft counts."""
    assert adapter_parameters(architecture(coder), 32) == 28 * 32 * (4 * 3584 + 2 * (3584 + 512) + 3 * (3584 + 18944))


def test_the_base_s_states_are_weights_alone(coder):
    bill = make_bill(coder, architecture(coder), assumptions("coder"))
    own = adapter_parameters(architecture(coder), 32) / 1e9
    assert bill.weights_gb == pytest.approx(2 * 7.616)
    assert (bill.gradients_gb, bill.optimizer_gb) == pytest.approx((4 * own, 12 * own))
    assert bill.checkpoint_gb == pytest.approx(12 * own) and bill.disk_gb < 20
    full = coder.model_copy(update={"train": coder.train.model_copy(update={"lora": None})})
    assert make_bill(full, architecture(coder), assumptions("coder")).update_s == pytest.approx(bill.update_s * 10 / 8)


@pytest.mark.parametrize("size", ["48 GB", "80 GB", "141 GB"])
def test_what_is_found_fits_and_is_accepted(coder, size):
    model, given = architecture(coder), assumptions("coder", {"device_memory_gb": SIZES[size]})
    keys, bill = fitting_keys(coder, model, given)
    assert bill.engine_fits and bill.peak_gb < SIZES[size]
    check_memory(with_keys(coder, keys), SIZES[size])
    assert f"{bill.peak_gb:.0f} GB" in table(coder)


def test_the_shipped_keys_are_those_of_80_gb(coder):
    keys, bill = fitting_keys(coder, architecture(coder), assumptions("coder", {"device_memory_gb": SIZES["80 GB"]}))
    assert keys.gradient_checkpointing and keys.micro_batch_size == coder.train.micro_batch_size
    assert keys.vllm_memory_share == pytest.approx(coder.train.vllm_memory_share, abs=0.05) and bill.peak_gb < 76
    check_memory(coder, SIZES["80 GB"])


def test_too_little_memory_is_told_with_the_keys_that_give_it(coder):
    kept = coder.model_copy(update={"train": coder.train.model_copy(update={"gradient_checkpointing": False})})
    sentence = (
        r"takes [\d.]+ GB, and the GPU has 51\.0: set train: \{vllm_memory_share: 0\.\d+, gradient_checkpointing: true"
    )
    with pytest.raises(DeviceError, match=sentence):
        check_memory(kept, SIZES["48 GB"])
    with pytest.raises(DeviceError, match=r"vllm_memory_share is 0\.4, 10 GB of this GPU, .* take a smaller model"):
        check_memory(coder, SIZES["24 GB"])
    small = load_study([*CODER, CONFIG / "coder_small.yaml"]).for_run("rl_multi")
    assert "too little" in table(coder) and "too little" not in table(small)
    for run in small.runs:
        check_memory(small.for_run(run), SIZES["24 GB"])


def test_the_table_assumes_what_it_is_told_to(coder):
    given = assumptions("coder", {"response_share": 1.0, "device_memory_gb": SIZES["80 GB"]})
    _, bill = fitting_keys(coder, architecture(coder), given)
    said = f"{bill.step_s:.0f} s"
    assert said in table(coder, {"response_share": 1.0}) and said not in table(coder)
