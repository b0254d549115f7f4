"""Reference modules of our own tasks as other people would write them: in other styles, and at other sizes."""
