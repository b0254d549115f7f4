"""Answers as models write them, and the one kernel in each: fences by CommonMark, thoughts under any tag."""

from __future__ import annotations

import time

import pytest

from kevin.core.dialogue import parse_completion
from kevin.core.fences import fenced, split_thought
from kevin.core.types import Dialect

LAUNCH = 'extern "C" void launch(const float* x, float* out) {\n  out[0] = x[0];\n}\n'
MODULE = 'import torch\n\n\nclass ModelNew(torch.nn.Module):\n    """See below."""\n'
DRAFT = '```cpp\nextern "C" void launch(float* draft) {}\n```\n'


def kernel_in(text: str, dialect: Dialect = "c_abi") -> str | None:
    kernel = parse_completion(text, dialect, "cpp").kernel
    return kernel.source if kernel else None


@pytest.mark.parametrize(
    "info",
    ["", "cpp", "c++", "C++", "CPP", "c", "cc", "cxx", "cu", "cuda", "CUDA C++", "cuda-cpp", 'cpp title="k"', "{.cpp}",
     "cpp {1,3}", "cpp{1}", " cpp", "cpp  ", "c++17", "cpp:src/k.cpp", "kernel.cpp", "kernel.cu", "language-cpp"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_whatever_the_fence_says_of_the_language(info: str, end: str) -> None:
    text = f"Here:\n\n```{info}\n{LAUNCH}```  \nSummary: done\n".replace("\n", end)
    assert kernel_in(text) == LAUNCH
    assert parse_completion(text, "c_abi", "cpp").summary == "done"
    assert kernel_in(text.replace(LAUNCH.replace("\n", end), "int half;\n")) == "int half;\n", "by what it says alone"


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "~~~~~", "  ```", "   ~~~"])
def test_fences_of_other_lengths_and_kinds(fence: str) -> None:
    indent = fence[: len(fence) - len(fence.lstrip())]
    body = "".join(indent + line for line in LAUNCH.splitlines(keepends=True))
    assert kernel_in(f"{fence}cpp\n{body}{fence}\n") == LAUNCH
    assert kernel_in(f"{fence}cpp\n{body}{fence}`~ no end\n") is None


def test_fences_inside_a_longer_one_end_nothing() -> None:
    code = f"/* As in\n```cpp\nlaunch(x, out);\n```\n*/\n{LAUNCH}"
    for fence in ("````", "~~~"):
        assert kernel_in(f"{fence}cpp\n{code}{fence}\n") == code
        assert kernel_in(f"{fence}cpp\n{LAUNCH}```\n{fence}\n") == f"{LAUNCH}```\n", "in no comment either"


@pytest.mark.parametrize(
    "comment", ["/* Use:\n```\nlaunch(x, out);\n```\n*/\n", "/*\n```cpp\nx\n```\n\n*/\n", "// ```\n"]
)
def test_fences_in_a_comment_of_the_kernel(comment: str) -> None:
    assert kernel_in(f"```cpp\n{comment}{LAUNCH}```\nSummary: s") == comment + LAUNCH
    assert kernel_in(f"```cpp\n{LAUNCH}{comment}```\n```bash\nmake\n```\n") == LAUNCH + comment


@pytest.mark.parametrize("opening", ['R"(', 'R"end('])
def test_fences_in_a_string_of_several_lines(opening: str) -> None:
    source = f'const char* usage = {opening}\n```\nlaunch(x, out);\n```\n){opening[2:-1]}";\n{LAUNCH}'
    assert kernel_in(f"```cpp\n{source}```\nRun it.\n") == source


@pytest.mark.parametrize("info", ["python", ""])
def test_fences_in_a_docstring(info: str) -> None:
    source = f'"""A module.\n\n```\nModelNew()(x)\n```\n"""\n{MODULE}'
    assert kernel_in(f"```{info}\n{source}```\nRun it.\n", "load_inline") == source


def test_a_comment_that_never_ends_takes_no_later_block() -> None:
    assert kernel_in(f"```cpp\n/* open\n```\nBetter:\n```cpp\n{LAUNCH}```\n") == LAUNCH


def test_blocks_of_lists_and_quotations() -> None:
    inner = "".join("    " + line for line in LAUNCH.splitlines(keepends=True))
    assert kernel_in(f"10. The kernel:\n\n    ```cpp\n{inner}    ```\n") == LAUNCH
    assert kernel_in(f"1. The kernel:\n   ```cpp\n{LAUNCH}   ```\n") == LAUNCH
    assert kernel_in("- ```cpp\n  " + LAUNCH.replace("\n", "\n  ") + "```\n") == LAUNCH
    assert kernel_in("> ```cpp\n> " + LAUNCH.replace("\n", "\n> ") + "```\n") == LAUNCH
    assert kernel_in(f"    ```cpp\n{inner}    ```\n") is None, "four spaces make no fence"
    assert kernel_in(f"\t```cpp\n{inner}\t```\n") is None, "nor does a tab"


@pytest.mark.parametrize(
    ("before", "head", "opening"),
    [
        ("- a:\n  - b:\n\n", "    ", None),
        ("1. a\n   - b:\n     1. c\n\n", "        ", None),
        ("1.\tThe kernel:\n\n", "\t", None),
        ("- a:\n\t- b:\n", "\t\t", None),
        ("", "\t", "-\t"),
        ("", "     ", "- 1. "),
        ("> - x\n>\n", ">   ", None),
        ("", "  > ", "- > "),
        ("", "> > ", None),
        ("", ">> ", ">> "),
    ],
)
def test_lists_and_quotations_within_each_other(before: str, head: str, opening: str | None) -> None:
    body = "".join(head + line for line in LAUNCH.splitlines(keepends=True))
    for fence in ("```", "~~~"):
        assert kernel_in(f"{before}{head if opening is None else opening}{fence}cpp\n{body}{head}{fence}\n") == LAUNCH
    tabbed = LAUNCH.replace("  out", "\tout")
    body = "".join(head + line for line in tabbed.splitlines(keepends=True))
    assert kernel_in(f"{before}{head if opening is None else opening}```cpp\n{body}{head}```\n") == tabbed


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>", " <eos>", "</answer>", "<|eot_id|></s>\n", "\u00a0\n", "\t\n"])
def test_what_a_model_or_a_format_puts_on_the_line_of_a_fence(end: str) -> None:
    assert kernel_in(f"```cpp\n{LAUNCH}```{end}") == LAUNCH
    assert kernel_in(f"<answer>```cpp\n{LAUNCH}```{end}") == LAUNCH
    for text in (f"<think>\n{DRAFT[:-1]}</think>", f"{DRAFT[:-1]}</think>"):
        assert kernel_in(f"{text}\n```cpp\n{LAUNCH}```{end}") == LAUNCH
        assert kernel_in(f"{text}\nI give up.") is None


@pytest.mark.parametrize("mark", ["\ufeff", "\u200b", "\ufeff\n"])
def test_marks_before_an_answer(mark: str) -> None:
    assert kernel_in(f"{mark}```cpp\n{LAUNCH}```") == LAUNCH
    assert kernel_in(f"{mark}<think>\n{DRAFT}</think>\n```cpp\n{LAUNCH}```") == LAUNCH


def test_lines_that_a_carriage_return_ends() -> None:
    assert kernel_in(f"Here:\n```cpp\n{LAUNCH}```\n".replace("\n", "\r")) == LAUNCH


@pytest.mark.parametrize(
    "cut", ["```", "```cp", "```cpp\n", f"```cpp\n{LAUNCH[:40]}", f"```cpp\n{LAUNCH}``", "~~~\n", "`"]
)
def test_an_answer_that_was_cut_in_the_middle(cut: str) -> None:
    parsed = parse_completion(f"Here:\n{cut}", "c_abi", "cpp")
    assert parsed.kernel is None and ("ends inside" in str(parsed.problem)) == (cut != "`")
    assert kernel_in(f"```cpp\n{LAUNCH}```\nBetter:\n{cut}") == LAUNCH


AFTER = [
    "```bash\ng++ -shared k.cpp\n```\n",
    "```python\nimport ctypes\nctypes.CDLL('k.so').launch(x, out)\n```\n",
    "```python\nsource = 'extern \"C\" void launch(float* x)'\n```\n",
    "```\ncorrect, 1.9x\n```\n",
    "```text\ncorrect\n```\n",
    "```output\n1.9\n```\n",
    "```console\n$ ./a.out\n```\n",
    "```json\n{}\n```\n",
    "```cpp\nint main() { launch(x, out); }\n```\n",
    "```cpp\n```\n",
    "```cpp\n/* cut off",
    "~~~\nx\n~~~\n",
]


@pytest.mark.parametrize("after", AFTER)
def test_blocks_that_can_be_no_kernel_are_skipped(after: str) -> None:
    assert kernel_in(f"```cpp\n{LAUNCH}```\nRun it:\n\n{after}Summary: s") == LAUNCH
    assert (
        kernel_in(f"First:\n{after}\n\n```cpp\n{LAUNCH}```\n" if "cut" not in after else f"```\n{LAUNCH}```") == LAUNCH
    )


@pytest.mark.parametrize(
    "after", [*AFTER, "```python\nprint(ModelNew()(x))\n```\n", "```cuda\n__global__ void k();\n```\n"]
)
def test_the_same_of_modules(after: str) -> None:
    assert kernel_in(f"```python\n{MODULE}```\nRun it:\n\n{after}", "load_inline") == MODULE


DECLARED = 'extern "C" void launch(const float* x, float* out);\n'


@pytest.mark.parametrize("info", ["cpp", "h", ""])
@pytest.mark.parametrize(
    "other",
    [
        DECLARED,
        f"{DECLARED}// calls launch(x, out)\nint main() {{ launch(x, out); if (launch(f(x), out)) return 1; }}\n",
        f'extern "C" {{\n{DECLARED[11:]}}}\n',
        DECLARED[:-2] + "\n",
    ],
)
def test_what_declares_and_calls_a_kernel_defines_none(other: str, info: str) -> None:
    assert kernel_in(f"```cpp\n{LAUNCH}```\nTest it:\n```{info}\n{other}```\n") == LAUNCH
    assert kernel_in(f"As asked:\n```{info}\n{other}```\nHence:\n```cpp\n{LAUNCH}```\n") == LAUNCH


@pytest.mark.parametrize(
    "parameters", ["const float* x,  // rows; of (n) each\n  float* out", "void (*f)(int), float* out", "ARGUMENTS"]
)
@pytest.mark.parametrize("head", ['extern "C" void launch({}) {{', 'extern "C" {{\nvoid launch ({}) noexcept\n{{ // 1'])
def test_however_a_kernel_is_defined(head: str, parameters: str) -> None:
    source = f"{DECLARED}{head.format(parameters)}\n  out[0] = 1;\n}}\n"
    assert kernel_in(f"```\n{source}```\nThen:\n```cpp\nint main() {{}}\n```\n") == source


def test_an_answer_that_stands_whole_in_a_block_of_markdown() -> None:
    for info in ("markdown", "md", "Markdown title=x"):
        for fence in ("```", "````", "~~~"):
            text = f"{fence}{info}\nHere:\n```cpp\n{LAUNCH}```\n{fence}\nSummary: s"
            assert kernel_in(text) == LAUNCH
            assert parse_completion(text, "c_abi", "cpp").summary == "s"
    assert kernel_in(f"```cpp\n{LAUNCH}```\nREADME:\n```md\n# K\n```\n") == LAUNCH
    assert kernel_in(f"```cpp\n{LAUNCH}```\n````md\n```cpp\nlaunch(x, out);\n```\n````\n") == LAUNCH


def test_either_dialect_is_told_by_its_block() -> None:
    both = f"```python\nimport ctypes\n```\n```cpp\n{LAUNCH}```\n```python\nprint(1)\n```\n"
    for text, dialect in ((both, "c_abi"), (f"```py\n{MODULE}```\n```cpp\nint a;\n```\n", "load_inline")):
        kernel = parse_completion(text, "auto", "cpp").kernel
        assert kernel is not None and kernel.dialect == dialect


@pytest.mark.parametrize("text", ["```bash\nmake\n```", "```python\nx = 1\n```\n```json\n{}\n```\n"])
def test_an_answer_of_other_blocks_says_which(text: str) -> None:
    problem = parse_completion(text, "c_abi", "cpp").problem
    assert problem is not None and "is a kernel in C++" in problem and text[3:7] in problem


# --- thoughts -----------------------------------------------------------------------------------------------------

TAGS = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<Thought>", "</Thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<reflection>", "</reflection>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<antThinking>", "</antThinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|start_think|>", "<|end_think|>"),
    ("<｜think｜>", "<｜/think｜>"),
    ("<THINK >", "</THINK >"),
    ("<chain_of_thought>", "</chain_of_thought>"),
    ("<cot>", "</cot>"),
    ("<plan>", "</plan>"),
    ("<inner_monologue>", "</inner_monologue>"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel|>commentary<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|thought_start|>", "<|thought_end|>"),
    ("<self-reflection>", "</self-reflection>"),
    ("<scratch_pad>", "</scratch_pad>"),
]


@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_a_thought_under_any_tag(opening: str, closing: str) -> None:
    good = f"```cpp\n{LAUNCH}```\n"
    assert kernel_in(f"{opening}\n{DRAFT}{closing}\n{good}") == LAUNCH
    assert kernel_in(f"\n {opening}{DRAFT[:-4]}\n{closing}{good}") == LAUNCH, "a draft's fence may stay open"
    assert kernel_in(f"{DRAFT}{closing}\n\n{good}") == LAUNCH, "opened by the template"
    assert kernel_in(f"{DRAFT[:-4]}\nno\n{closing}\n{good}```bash\nmake\n```\n") == LAUNCH
    for cut in (f"{opening}\n{DRAFT}Hmm,", f"{opening}\n{DRAFT}{closing}\nI give up.", f"{DRAFT}{closing}\nNothing."):
        assert kernel_in(cut) is None
    assert "never closed" in str(parse_completion(f"{opening}\n{DRAFT}", "c_abi", "cpp").problem)


@pytest.mark.parametrize(("opening", "closing"), TAGS)
@pytest.mark.parametrize("code", ["// no {} here", "  /* {} */", 'const char* end = "{}";', "x = 1;  # {}"])
def test_a_closing_tag_in_a_drafts_code_ends_no_thought(opening: str, closing: str, code: str) -> None:
    draft = DRAFT.replace("{}", f"{{\n{code.format(closing)}\n}}")
    assert kernel_in(f"{opening}\nFirst:\n{draft}Hmm.\n{closing}\n```cpp\n{LAUNCH}```\n") == LAUNCH
    assert kernel_in(f"{opening}\nFirst:\n{draft}Hmm.\n{closing}\nI give up.\n") is None
    assert kernel_in(f"{opening}\nA draft is open:\n{draft[:-4]}done {closing}\n```cpp\n{LAUNCH}```\n") == LAUNCH


@pytest.mark.parametrize("tag", [tag for pair in TAGS for tag in pair])
def test_a_tag_in_a_comment_is_a_comment(tag: str) -> None:
    for comment in (f"// {tag}\n", f"/* {tag} */\n", f"/*\n{tag}\n*/\n", f"// says {tag} here\n"):
        source = comment + LAUNCH
        for before in ("", "<think>\nHm.\n</think>\n", "Hm.\n</think>\n"):
            for after in ("", "```bash\nmake\n```\n", f"Summary: kept {tag}\n", f"I kept `{tag}` in it."):
                assert kernel_in(f"{before}```cpp\n{source}```\n{after}") == source


def test_a_thought_that_begins_later_and_is_cut_off() -> None:
    assert kernel_in(f"Sure!\n<think>\n{DRAFT}Hmm") is None
    assert kernel_in(f"```cpp\n{LAUNCH}```\n<think>\n{DRAFT}Hmm") == LAUNCH
    assert kernel_in(f"The <think> tag stays out.\n```cpp\n{LAUNCH}```\n") == LAUNCH


def test_thought_and_answer_apart() -> None:
    assert split_thought("<think>\nHm.\n</think>\n\nYes.") == ("Hm.", "Yes.")
    assert split_thought("Hm.</think>Yes.") == ("Hm.", "Yes.")
    assert split_thought("No thought.") == ("", "No thought.")


# --- what we write ourselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [LAUNCH, f"/*\n```\n````\n*/\n{LAUNCH}", f"// ```\n{LAUNCH}", f"```\n{LAUNCH}"])
def test_a_kernel_comes_back_from_its_fence(source: str) -> None:
    assert kernel_in(fenced(source, "cpp") + "\nSummary: s") == source
    assert (fenced(source, "cpp")[:4] == "```c") == ("\n```" not in "\n" + source)


@pytest.mark.parametrize(
    "piece",
    ["```\n", "```cpp\n", "```\n</think>\n```\n", "</think>\n", "```cpp\n</think>\n", "/*\n```\n", "<think>",
     "<" + "a" * 99, "```cpp\n/*\n", "- ", "> ```\n", "- > ", "> > ```\n", "\t", "-\t", "<a>", "```</s>\n",
     '"""\n```\n', "[think]\n```x\n", "`", 'R"(\n```\n', "</think>", "<channel|>", "```md\n"],
)  # fmt: skip
def test_no_answer_takes_long(piece: str) -> None:
    """A hundred thousand characters that repeat one piece: what grows with the square of it would take minutes."""
    parsed = parse_completion(piece * (100_000 // len(piece)), "auto", "cpp")
    assert (parsed.kernel is None) != (parsed.problem is None)


@pytest.mark.parametrize("piece", ['extern "C" ', 'extern "C" launch(', "launch() ", "class ModelNew ", "\t", 'R"('])
def test_no_kernel_takes_long(piece: str) -> None:
    start_s = time.process_time()
    kernel_in(f"```cpp\n{piece * (100_000 // len(piece))}\n```\n")
    assert time.process_time() - start_s < 4
