"""`kevin serve`: the judge behind HTTP, as a source of rewards for training elsewhere.

``messages`` says what goes over the wire, ``desk`` which pair is judged when, ``app`` answers requests, and starts and
stops all of it.
"""
