"""Writers of the sequences that the study's own tasks are made of, in more loop orders than `kevin.writer.general`."""
