"""Verdicts from `kevin serve` by the standard library alone. KEVIN_URL and KEVIN_TOKEN say where and as whom."""

import email.utils
import http.client
import ipaddress
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

BUSY = (429, 502, 503, 504)
"""Statuses of a server, or of a proxy before it, that may answer later."""
AROUND = "\ufeff \t\r\n"
"""What an editor, or a shell that reads a file, leaves around a token."""
WAIT_S, LONGEST_WAIT_S = 2.0, 300.0


def judge(pairs, what="kernel"):
    """Verdicts of (reference, kernel) pairs of source texts, in order; waits while the server is busy or restarts.

    With ``what="answer"`` the second of a pair is what a model answered, and the server takes the kernel out of it.
    Returns a dict for each pair: "verdict", "speedup" (None unless correct), "score" and, of an answer, "seen": kernel
    and summary without the thought, for the prompts of later turns. Or "error" in place of all.
    """
    body = json.dumps({"pairs": [{"reference": reference, what: text} for reference, text in pairs]}).encode()
    url = f"{os.environ['KEVIN_URL'].rstrip('/')}/v1/batch"
    token = f"Bearer {os.environ['KEVIN_TOKEN'].strip(AROUND)}".encode()
    ask, place = _opener(url)
    told = None
    while True:
        try:
            request = urllib.request.Request(url, body, {"Authorization": token})
            with ask.open(request, timeout=3600) as answer:
                return _results(url, answer.read(), len(pairs))
        except urllib.error.HTTPError as e:
            said = _text(e)
            if e.code not in BUSY:
                raise RuntimeError(said or f"{url}: status {e.code}") from None
            wait_s, why = _wait_s(e.headers.get("Retry-After")), f"status {e.code} {said[:200]}"
        except (OSError, http.client.HTTPException) as e:
            wait_s, why = WAIT_S, str(e) or type(e).__name__
        if why != told:
            print(f"waiting for {place}: {why}; asking again", file=sys.stderr)
            told = why
        time.sleep(wait_s)


def told(result):
    """What the next turn is told of a result of `judge`."""
    if "error" in result:
        return "It was not judged.\nWrite the complete code again."
    verdict, speedup = result["verdict"], result["speedup"]
    correct = f", {speedup:.2f}x as fast as PyTorch" if speedup else ""
    return f"{verdict['outcome']}{correct}. {verdict['message']}\nWrite the complete new code."


def returns(scores, gamma=0.4):
    """Of each turn of a trajectory its score and the discounted scores of the turns after it (arXiv 2507.11948).

    None for a turn without a score, which counts as nothing for those before it.
    """
    found, later = [], 0.0
    for score in reversed(scores):
        later = (score or 0.0) + gamma * later
        found.append(None if score is None else later)
    return found[::-1]


def _results(url, body, count):
    """What the server says of so many pairs. Raises RuntimeError where something else has answered in its place."""
    try:
        found = json.loads(body)["results"]
        if len(found) == count:
            return found
    except (ValueError, TypeError, KeyError):
        pass
    raise RuntimeError(f"{url}: no answer of kevin serve to {count} pairs: {body[:200]!r}")


def _text(error):
    """The body of a refusal, as much of it as came."""
    try:
        body = error.read()
    except (OSError, http.client.HTTPException):
        body = b""
    return body.decode(errors="replace")


def _opener(url):
    """What sends requests, and in words where to: by the environment's proxy, unless the server is on this machine.

    Raises RuntimeError for what is no address.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[^\s\x00-\x1f]+", host):
        raise RuntimeError(f"KEVIN_URL {os.environ['KEVIN_URL']!r} is no address such as http://127.0.0.1:8421")
    try:
        address = ipaddress.ip_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        is_here = address.is_loopback or address.is_unspecified
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    proxy = None if is_here or urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme)
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))
    return opener, f"{url} by the proxy {proxy}" if proxy else url


def _wait_s(said):
    """What ``Retry-After`` asks for, in seconds or as a date; `WAIT_S` where it says nothing of use."""
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        try:
            seconds = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (TypeError, ValueError):
            return WAIT_S
    return min(seconds, LONGEST_WAIT_S) if seconds > 0 else WAIT_S
