"""One CPU or GPU on which candidates are judged: hardware, memory, whose it is, and the order of a verdict."""
