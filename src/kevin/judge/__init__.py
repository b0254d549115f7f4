"""The judge: screen -> build -> run in a fresh process -> correctness -> timing -> `Verdict`.

The verdict is formed outside the candidate's process: seeds, reference outputs and the comparison never enter it.
``inside/`` holds the only code that shares a process with a candidate; it imports nothing of this package.
"""
