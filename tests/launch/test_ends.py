"""The launcher: how processes end, with all that they have started, and what is left of them."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.launch.programs import LAUNCHER, LIMIT, has_ended, run, start, wait

pytestmark = pytest.mark.timeout(LIMIT + 20)

READY = "lives.with_suffix('.ready').touch()\nwhile True:\n    time.sleep(0.1)\n"
SAVE = (
    "def save(*_):\n    lives.with_suffix('.saved').touch()\n    sys.exit()\n"
    "signal.signal(signal.SIGTERM, save)\n"
) + READY
DEAF = "signal.signal(signal.SIGTERM, lambda *_: None)\n" + READY


@pytest.mark.parametrize(
    ("program", "grace", "signals"),
    [
        (SAVE, 600, [signal.SIGTERM]),
        (SAVE, 600, [signal.SIGINT]),
        (SAVE, 600, [signal.SIGHUP]),
        (SAVE, 600, [signal.SIGUSR1]),
        (DEAF, 1, [signal.SIGTERM]),
        (DEAF, 600, [signal.SIGINT, signal.SIGINT]),
    ],
)
def test_signals_end_all_which_may_save_before(
    tmp_path: Path, program: str, grace: int, signals: list[signal.Signals]
) -> None:
    process = start(tmp_path, program, "--workers=2", f"--grace={grace}", "--restarts=3")
    wait(process, lambda: len([*tmp_path.glob("*.ready")]) == 2)
    process.send_signal(signals[0])
    said = iter(process.stdout.readline, "")
    assert any(f"{signals[0].name}: ends all within {grace} s" in line for line in said)
    for number in signals[1:]:
        process.send_signal(number)
    output, _ = process.communicate()
    assert process.returncode == 128 + signals[0]
    assert len([*tmp_path.glob("*.saved")]) == (2 if program == SAVE else 0)
    assert "Traceback" not in output


LEAVES = """
import socket
port, pids = (Path(sys.argv[1], of) for of in ('port', 'pids'))
here = '127.0.0.1', int(port.read_text()) if port.exists() else 0
listening = socket.create_server(here)
port.write_text(str(listening.getsockname()[1]))
def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
for leave in (lambda: None, os.setsid, daemon):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave()
        with pids.open('a') as file:
            print(os.getpid(), file=file)
        time.sleep(600)
        os._exit(0)
wait(lambda: pids.exists() and len(pids.read_text().split()) == 3 * (life + 1))
if life == 0:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("end", "number", "status"),
    [
        ("", 0, 0),
        ("sys.exit(3)", 0, 3),
        (READY, signal.SIGTERM, 128 + signal.SIGTERM),
        (READY, signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_processes_that_a_task_leaves_behind_end_with_it(
    tmp_path: Path, end: str, number: int, status: int
) -> None:
    """They hold its port, in its group, in a session of their own and without a parent."""
    process = start(tmp_path, LEAVES + end, "--workers=1", "--restarts=1")
    if number:
        wait(process, lambda: [*tmp_path.glob("*.ready")])
        process.send_signal(number)
    output, _ = process.communicate()
    assert process.returncode == status, output
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 6
    deadline = time.monotonic() + LIMIT
    while status == -signal.SIGKILL and time.monotonic() < deadline:  # the keeper goes on
        if all(map(has_ended, pids)):
            break
        time.sleep(0.05)
    assert all(map(has_ended, pids))


def test_the_whole_group_of_a_task_gets_the_signal(tmp_path: Path) -> None:
    program = (
        "child = 0\n"
        "def note(*_):\n"
        "    lives.with_suffix(f'.{os.getpid()}').touch()\n"
        "    if child:\n"
        "        os.wait()\n"  # what a task leaves behind is killed
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, note)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    lives.with_suffix('.ready').touch()\n"
        "time.sleep(600)\n"
    )
    process = start(tmp_path, program, "--workers=1", "--grace=60")
    wait(process, lambda: [*tmp_path.glob("*.ready")])
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert len([*tmp_path.glob("worker 0.[0-9]*")]) == 2


@pytest.mark.parametrize("ends", [True, False])
def test_the_evaluator_may_evaluate_the_last_checkpoint(tmp_path: Path, ends: bool) -> None:
    program = (
        "trained = lives.with_name('trained')\n"
        "if name != 'evaluator 0':\n"
        "    trained.touch()\n"
        "    sys.exit()\n"
        "wait(trained.exists)\n"
        "time.sleep(1)\n"
        "lives.with_name('evaluated').touch()\n"
    ) + ("" if ends else READY)
    options = ["--workers=2", "--evaluator", f"--grace={600 if ends else 3}"]
    status, output, lives = run(tmp_path, program, *options)
    assert status == 0
    assert "training has ended: waits for the evaluator, up to " in output
    assert (tmp_path / "evaluated").exists()
    assert lives["worker 0"] == 1


def test_an_evaluator_that_fails_does_not_start_workers_again(tmp_path: Path) -> None:
    program = "if name == 'evaluator 0' and life == 0:\n    time.sleep(1)\n    sys.exit(1)\n"
    status, _, lives = run(tmp_path, program, "--workers=1", "--evaluator", "--restarts=1")
    assert status == 0
    assert lives == {"worker 0": 1, "evaluator 0": 2}


def test_nothing_but_the_log_suffers_from_a_full_disk(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for worker in range(2):
        (logs / f"worker-{worker}.log").symlink_to("/dev/full")
    program = "print(name, 'prints', flush=True)\nprint('and', name, file=sys.stderr)\n" * 2
    status, output, _ = run(tmp_path, program, "--workers=2", f"--logs={logs}")
    assert status == 0, output
    assert output.count("and worker 0\n") == 2
    for worker in range(2):
        said = f"the output of worker {worker} is lost: {logs}/worker-{worker}.log: No space left"
        assert output.count(said) == 1


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2> >(true)", ">&- 2>&- <&-"])
def test_a_stderr_that_takes_nothing_is_no_failure(tmp_path: Path, redirection: str) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, time\ntime.sleep(1)\nprint('said', file=sys.stderr)\n")
    line = " ".join([*LAUNCHER, "--workers=2", f"--logs={tmp_path}", str(program), redirection])
    assert subprocess.run(["bash", "-c", line], timeout=LIMIT, check=False).returncode == 0
    assert (tmp_path / "worker-0.log").read_text() == "said\n"
