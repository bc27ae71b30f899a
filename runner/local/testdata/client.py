"""The published Python client against the embedded gateway: prints ok, or fails."""

import sys
import time

from openshell import SandboxClient

W = {"workspace": "default"}

with SandboxClient(sys.argv[1]) as client:
    assert client.health().version.startswith("0.1."), client.health()
    ref = client.create(name="from-python", labels={"made-by": "python"}, **W)
    ref = client.wait_ready(ref.name, timeout_seconds=60, **W)

    result = client.exec(ref.name, ["echo", "hello"], **W)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", ""), result
    result = client.exec(ref.name, ["sh", "-c", "cat; echo err >&2; exit 7"], stdin=b"in", **W)
    assert (result.exit_code, result.stdout, result.stderr) == (7, "in", "err\n"), result
    result = client.exec(ref.name, ["sh", "-c", "echo $A; pwd"], env={"A": "b"}, workdir="/usr", **W)
    assert result.stdout == "b\n/usr\n", result
    result = client.exec(ref.name, ["sleep", "60"], timeout_seconds=1, **W)
    assert result.exit_code == 124, result

    begin, first = time.time(), None
    for item in client.exec_stream(ref.name, ["sh", "-c", "echo one; sleep 2; echo two"], **W):
        first = first or time.time() - begin
    assert first < 1.5, f"the first output came after {first} s"
    assert item.stdout == "one\ntwo\n", item

    client.exec(ref.name, ["sh", "-c", "echo kept >/tmp/file"], **W)
    client.stop(ref.name, **W)
    client.wait_stopped(ref.name, timeout_seconds=60, **W)
    client.start(ref.name, **W)
    client.wait_ready(ref.name, timeout_seconds=60, **W)
    result = client.exec(ref.name, ["cat", "/tmp/file"], **W)
    assert result.stdout == "kept\n", result

    names = [box.name for box in client.list_all(**W)]
    assert names == ["from-python"], names
    client.delete(ref.name, **W)
    client.wait_deleted(ref.name, **W)
    assert client.list_all(**W) == []
print("ok")
