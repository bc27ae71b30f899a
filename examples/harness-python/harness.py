#!/usr/bin/env python3
"""A harness in Python. It has each result only after it is signed and on disk.

It holds no key: plimsoll-attest wrap does, which starts the runner and keeps it away
from the key. Each call is a line of JSON to wrap, and a line back (docs/wrap.md).
"""

import argparse
import base64
import json
import subprocess
import sys
import threading


class HarnessError(Exception):
    """told is what wrap said: a refused, a call, its end, or None if it said nothing."""

    def __init__(self, text, told=None):
        super().__init__(text)
        self.told = told


class Refused(HarnessError):
    """Nothing ran, and nothing is signed. Once corrected, it can be given again."""


class Unanswered(HarnessError):
    """Signed as unanswered. It may have run: given again, it may run twice."""


class Unsigned(HarnessError):
    """The session is over, and not all of its evidence is signed."""


class Harness:
    """A session of calls. Leaving its with block ends it, which seals the bundle."""

    def __init__(self, key, bundle, expect_out, attest="plimsoll-attest", runner=("plimsoll-run", "session"), options=()):
        args = [attest, "wrap", f"--key={key}", f"--bundle={bundle}", "--calls=-", f"--expect-out={expect_out}"]
        # Standard error stays the caller's: nobody here would read a pipe.
        self._wrap = subprocess.Popen([*args, *options, "--", *runner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._one = threading.Lock()  # one call is out at a time
        self._out = False  # a call is, or was when the session ended
        self._statuses = {0}  # of the runner, that say nothing new
        self._over = None  # what there is to raise, once ended

    def call(self, request):
        """Runs a call. Returns what wrap tells of it, outputs and artifacts as bytes."""
        text = json.dumps(request).encode() + b"\n"
        with self._one:
            if self._out or self._wrap.stdin.closed:
                raise self._over or HarnessError("the session is over")
            self._out = True  # until it is answered: else the next call had its answer
            try:
                self._wrap.stdin.write(text)
                self._wrap.stdin.flush()
                line = self._wrap.stdout.readline()  # of a wrap that died, empty
            except BrokenPipeError:
                line = self._wrap.stdout.readline()  # its end says why
            told = json.loads(line) if line.endswith(b"\n") else {}
            if "call" not in told and "refused" not in told:
                raise self._end(line) or HarnessError("wrap was ended, and this call did not run", told.get("end"))
            self._out = False
        if "refused" in told:
            self._statuses.add(3)
            raise Refused("{trace_id!r}: {code}: {detail}".format(**told["refused"]), told["refused"])
        result = told["call"]
        for part in result["steps"] + result["artifacts"]:
            for name in part.keys() & {"stdout", "stderr", "content"}:
                part[name] = base64.b64decode(part[name])
        if result["unanswered"]:
            self._statuses.add(4)
            raise Unanswered("{trace_id!r}: {unanswered}".format(**result), result)
        return result

    def _end(self, line=b""):
        """Ends the session, and returns what there is to raise."""
        try:
            self._wrap.stdin.close()
        except BrokenPipeError:
            pass
        lines = (line + self._wrap.stdout.read()).split(b"\n")  # to EOF; the last is cut, or empty
        self._wrap.stdout.close()
        status = self._wrap.wait()
        try:
            end = json.loads(lines[-2]).get("end") if len(lines) > 1 else None
        except ValueError:  # cut
            end = None
        if not end or end["error"] or not end["sealed"]:
            text = f"wrap: exit status {status}: " + (end["error"] if end else "it has no end line")
            if end and end["open"]:
                text += "; line {input_line} ({trace_id!r}) may have run".format(**end["open"])
            if end and end["side_files"]:
                text += f"; {end['moved']} signed calls are in {', '.join(end['side_files'])} instead"
            self._over = Unsigned(text, end)
        elif status == 125:  # of a runner, or of what could not be told: never a success
            self._over = Unsigned("wrap: exit status 125", end)
        elif status not in self._statuses:
            self._over = HarnessError(f"all is signed, and the runner exited with {status}", end)
        return self._over

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if self._wrap.stdin.closed:  # call has seen its end; left without an error, say it again
            if error is None and self._over:
                raise self._over
            return
        if error:
            self._statuses |= {3, 4}
            if self._out and kind is not KeyboardInterrupt:  # that has reached wrap too; a second one kills
                self._wrap.terminate()  # the runner ends its call, and what there is is signed
        with self._one:
            over = self._end()
        if over:
            raise over


def main():
    parser = argparse.ArgumentParser(description="Run calls in a sandbox, sign what they did, and verify it.")
    for name, what in ("key", "private key"), ("pub", "its public key"), ("bundle", "to add the signed calls to"), ("expect", "to add the list of calls to"):
        parser.add_argument("--" + name, required=True, metavar="FILE", help=what)
    parser.add_argument("--attest", default="plimsoll-attest", help="path of plimsoll-attest")
    parser.add_argument("--runner", nargs="+", default=["plimsoll-run", "session"], help="the runner and its arguments")
    parser.add_argument("--calls", required=True, metavar="FILE", help="a call a line")
    args = parser.parse_args()
    missing = 0
    try:
        with open(args.calls, "rb") as file:
            calls = [json.loads(line) for line in file if line.strip()]  # all, before any runs
        with Harness(args.key, args.bundle, args.expect, args.attest, args.runner) as h:
            for request in calls:
                try:
                    result = h.call(request)
                    print(result["trace_id"], "exit", [step["exit_code"] for step in result["steps"]], flush=True)
                except (Refused, Unanswered) as e:
                    missing += 1
                    print(type(e).__name__.lower(), e, flush=True)
    except (HarnessError, OSError, ValueError) as e:
        sys.exit(f"harness: {e}")
    status = subprocess.call([args.attest, "verify", f"--pub={args.pub}", f"--expect={args.expect}", "--", args.bundle])
    sys.exit(status or (3 if missing else 0))


if __name__ == "__main__":
    main()
