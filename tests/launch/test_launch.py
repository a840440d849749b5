"""The launcher: who it starts where, which errors it names, and how processes start again.

The programs here are a few lines without TensorFlow; tests/launch/test_training.py has real ones.
"""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.programs import LAUNCHER, LIMIT, run
from tf_gc.launch import __main__ as launch
from tf_gc.launch.processes import find_error
from tf_gc.launch.tasks import MESSAGES, MET, check, gpus_of, in_pods, on_this_host, tasks_of

pytestmark = pytest.mark.timeout(LIMIT + 20)

SLURM = {"PROCID": "3", "NODEID": "1", "STEP_NODELIST": "n[2,10]", "STEP_TASKS_PER_NODE": "2(x2)"}
PODS = {"JOB_COMPLETION_INDEX": "1"}


def configs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, dict[str, list[str]]]:
    """Returns the cluster of each task that a dry run prints."""
    monkeypatch.setattr(sys, "argv", ["launch", *options, "--dry-run", "any.py", "--its", "own"])
    assert launch.main() == 0
    found = {}
    for line in capsys.readouterr().out.splitlines():
        name, _, text = line.partition(": ")
        config = json.loads(text)
        assert name == "{type} {index}".format(**config["task"])
        found[name] = config["cluster"]
    return found


def test_a_dry_run_names_each_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local = configs(monkeypatch, capsys, "--workers=2", "--servers=1", "--evaluator")
    assert [*local] == ["chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"]
    (cluster,) = {json.dumps(cluster) for cluster in local.values()}
    addresses = [address for job in json.loads(cluster).values() for address in job]
    assert len({*addresses}) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)

    hosts = ["--hosts=127.0.0.1,n2:9000,[::2]", "--workers-per-host=2", "--port=700"]
    on_hosts = configs(monkeypatch, capsys, *hosts)
    expected = ["127.0.0.1:700", "127.0.0.1:701", "n2:9000", "n2:9001", "[::2]:700", "[::2]:701"]
    assert on_hosts["worker 5"]["worker"] == expected

    for name, value in SLURM.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    expected = ["n2:8888", "n2:8889", "n10:8888", "n10:8889"]
    assert configs(monkeypatch, capsys)["worker 3"]["worker"] == expected

    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    monkeypatch.setattr(socket, "gethostname", lambda: "trainer-1")
    in_pods = configs(monkeypatch, capsys, "--service=pods", "--workers=2")
    assert in_pods["worker 1"]["worker"] == ["trainer-0.pods:8888", "trainer-1.pods:8888"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "say where the workers are: --workers or --hosts, or use srun"),
        ("--workers=0", "--workers must be at least 1, got 0"),
        ("--workers=two", "--workers: invalid int value: 'two'"),
        ("--workers=11000", "this host has 5000 ports for tasks, and not 11000"),
        ("--workers=2 --port=9000", "--port needs other hosts; with --workers ports are free"),
        ("--workers=2 --port=9000 --servers=1", "--port needs other hosts"),
        ("--hosts=a --port=80000", "--port must be at most 65535, got 80000"),
        (
            "--hosts=a,b:65534 --index=0 --workers-per-host=3",
            "ports end at 65535, and 3 workers per host need 65536",
        ),
        ("--hosts=", "--hosts is empty"),
        ("--workers=1 --service=", "--service is empty"),
        (f"--workers=1 --logs={__file__}", f"--logs {__file__}: [Errno 17] File exists"),
        ("--workers=1 --logs=/proc/1/fdinfo/new", "--logs /proc/1/fdinfo/new: [Errno"),
        ("--workers=1 -m", "there is no module /"),
        ("--workers=1 -m no_such.module", "there is no module no_such.module"),
        ("--servers=1", "--servers needs --workers"),
        ("--index=0", "--index needs --hosts"),
        ("--service=s", "--service needs --workers, the number of pods"),
        ("--service=s --workers=2", "of 2 pods, JOB_COMPLETION_INDEX is ''"),
        ("--service=s --workers=2 --evaluator", "--evaluator needs --workers, on one host"),
        (
            "--workers=2 --hosts=a",
            "--workers needs one host; with --hosts it is --workers-per-host",
        ),
        ("--hosts=a --service=s", "argument --service: not allowed with argument --hosts"),
        ("--hosts=127.0.0.1,127.0.0.2", "127.0.0.1 and 127.0.0.2 are this host, by its"),
        ("--hosts=192.0.2.1", "of --hosts 192.0.2.1 none is this host, by its addresses"),
        ("--hosts=a,b --index=2", "--index must be 0 to 1 with --hosts a,b: 2"),
        ("--hosts=a:70000", "with a port from 1 to 65535, got 'a:70000'"),
        ("--hosts=a,", "must be host or host:port, with a port from 1 to 65535, got ''"),
        ("--hosts=127.0.0.1,no.invalid", "the host 'no.invalid' has no address"),
        ("--hosts=127.0.0.1:1,127.0.0.1:1 --index=0", "two tasks have the same address"),
    ],
)
def test_an_error_names_the_wrong_option(
    options: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["launch", *options.split(), __file__])
    with pytest.raises(SystemExit) as ended:
        launch.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_error_names_what_is_wrong_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["launch", *arguments])
        with pytest.raises(SystemExit):
            launch.main()
        return capsys.readouterr().err

    assert "there is no program missing.py" in error("--workers=1", "missing.py")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        assert f"the port of worker 0, {here}, is in use" in error("--hosts", here, __file__)
    monkeypatch.setenv("TF_CONFIG", "{broken")
    assert "TF_CONFIG is set, to something else: {broken" in error("--workers=1", __file__)
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    assert 'TF_CONFIG is set, to something else: {"cluster": {}}' in error("--workers=1", __file__)


def test_a_pod_may_start_before_its_name_is_known_and_has_to_be_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([OSError("not yet"), None, OSError("nobody listens at the port")])

    def getaddrinfo(*_: object) -> None:
        if error := next(answers):
            raise error

    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    monkeypatch.setattr(socket, "gethostname", lambda: "trainer-1")
    everybody, here = in_pods("127.0.0.1", 2, 21)
    monkeypatch.setenv("TF_CONFIG", here[0].tf_config)  # what it will be
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    check(everybody, here, pods=True)
    assert not [*answers]
    with pytest.raises(ValueError, match="of 1 pods, JOB_COMPLETION_INDEX is '1'"):
        in_pods("127.0.0.1", 1, 21)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "one")
    monkeypatch.setattr(socket, "gethostname", lambda: "trainer-one")
    with pytest.raises(ValueError, match="of 2 pods, JOB_COMPLETION_INDEX is 'one'"):
        in_pods("127.0.0.1", 2, 21)


def test_it_imports_no_tensorflow_and_public_names_do_when_they_are_used() -> None:
    program = (
        "import sys, tf_gc, tf_gc.launch.__main__\n"
        "assert not {'tensorflow', 'keras', 'numpy'} & {*sys.modules}\n"
        "assert 'TwoBit' in dir(tf_gc)\n"
        "assert tf_gc.keras.BackupAndRestore and 'tensorflow' in sys.modules\n"
        "from tf_gc import TwoBit\n"
        "assert TwoBit is tf_gc.params.TwoBit and not hasattr(tf_gc, 'ThreeBit')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT)


def test_workers_share_gpus_evenly_and_others_see_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    shares = [share["CUDA_VISIBLE_DEVICES"] for share in gpus_of(on_this_host(2, servers=1))]
    assert shares == ["", "4,5", "6,7", ""]
    assert gpus_of(on_this_host(6)) == [{}] * 6  # too few
    assert gpus_of(on_this_host(1)) == [{}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,-1,2")  # CUDA stops at what is no device
    assert [*gpus_of(on_this_host(2))[1].values()] == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpus_of(on_this_host(1, servers=1)) == [{}] * 3


def test_grpc_finds_no_proxy_for_tasks_nor_for_whom_the_user_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (task, _) = tasks_of({"worker": 2}, ["[fd00::1]:8888", "n2:8888"])
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    assert task.environment()["no_grpc_proxy"] == "fd00::1,n2"
    monkeypatch.setenv("no_proxy", ".corp,10.0.0.9")
    assert task.environment()["no_grpc_proxy"] == ".corp,10.0.0.9,fd00::1,n2"
    monkeypatch.setenv("no_grpc_proxy", "data")
    assert task.environment()["no_grpc_proxy"] == "data,fd00::1,n2"


def test_the_first_task_writes_to_the_terminal_and_the_others_to_logs(tmp_path: Path) -> None:
    program = "print(name, os.environ['no_grpc_proxy'])\nprint('error of', name, file=sys.stderr)\n"
    logs = tmp_path / "logs"
    status, output, _ = run(tmp_path, program, "--workers=2", f"--logs={logs}")
    assert status == 0
    assert re.search(r" starts worker 0 at 127.0.0.1:\d+, worker 1 at 127.0.0.1:\d+; all", output)
    assert f"; all but the first write to {logs}\n" in output
    assert "worker 0 127.0.0.1\n" in output
    assert "error of worker 0\n" in output
    assert "error of worker 1" not in output
    log = "worker 1 127.0.0.1\nerror of worker 1\n"
    assert (logs / "worker-1.log").read_text() == log
    _, output, _ = run(tmp_path, program, "--workers=2", f"--logs={logs}")
    assert output.count("error of worker 0\n") == 1
    assert (logs / "worker-1.log").read_text() == 2 * log


def test_the_terminal_is_not_flooded_by_tries_to_connect(tmp_path: Path) -> None:
    program = (
        "for i in range(50):\n"
        "    print(f'E0000 unexpectedly tried to connect while it is already in error {i}',"
        " file=sys.stderr)\n"
        "print('and then', file=sys.stderr)\n"
    )
    _, output, _ = run(tmp_path, program, "--workers=1", f"--logs={tmp_path}")
    assert output.count("unexpectedly") <= 1  # of which half may be written later
    assert "and then\n" in output
    assert (tmp_path / "worker-0.log").read_text().count("unexpectedly") == 50


def test_a_failure_is_shown_and_ends_all(tmp_path: Path) -> None:
    program = (
        "if name == 'worker 1':\n"
        "    import atexit\n"
        "    atexit.register(print, 'and more\\n' * 1000)\n"
        "    raise ValueError('no data')\n"
        "time.sleep(600)\n"
    )
    status, output, _ = run(tmp_path, program, "--workers=3")
    assert status == 1
    assert "worker 1 exited with 1 (ValueError: no data) after" in output
    assert "\nworker 1: ValueError: no data\nworker 1: and more\n" in output
    (logs,) = tmp_path.glob("tf_gc_launch_*")  # there is none after a good end
    assert f"ends with status 1; logs are in {logs}\n" in output
    assert "no data" in (logs / "worker-1.log").read_text()


def test_the_status_is_of_the_task_that_was_killed_not_of_one_that_noticed(tmp_path: Path) -> None:
    # The launcher stands still until both have ended.
    program = (
        "pid = Path(sys.argv[1], 'pid')\n"
        "if name == 'worker 1':\n"
        "    pid.with_suffix('.new').write_text(str(os.getpid()))\n"
        "    pid.with_suffix('.new').rename(pid)\n"
        "    time.sleep(600)\n"
        "wait(pid.exists)\n"
        "os.kill(os.getppid(), signal.SIGSTOP)\n"
        "os.kill(int(pid.read_text()), signal.SIGKILL)\n"
        "ended = f'grep -q zombie /proc/{os.getpid()}/status'\n"
        "os.system(f'(until {ended}; do sleep 0.1; done; kill -CONT {os.getppid()}) &')\n"
        "sys.exit(1)\n"
    )
    status, output, _ = run(tmp_path, program, "--workers=2")
    assert "worker 1 was killed by SIGKILL" in output
    assert status == 128 + signal.SIGKILL


def test_tasks_that_fail_start_again_and_those_that_ended_well_with_them(tmp_path: Path) -> None:
    program = (
        "if name == 'worker 0' and life < 2:\n"
        "    time.sleep(1)\n"
        "    raise ValueError(f'in life {life}')\n"
    )
    status, output, lives = run(tmp_path, program, "--workers=2", "--restarts=2")
    assert status == 0, output
    assert lives == {"worker 0": 3, "worker 1": 3}
    assert "worker 0 exited with 1 (ValueError: in life 0) after" in output
    assert "s: starts again in 1 s, 1 restarts left\n" in output
    assert "s: starts again in 2 s, 0 restarts left\n" in output


@pytest.mark.parametrize("met", [True, False])
def test_one_that_had_met_a_failed_task_starts_again_even_if_it_ends_well_later(
    tmp_path: Path, met: bool
) -> None:
    program = (
        f"if name == 'worker 0' and {met}:\n"
        f"    open(os.environ[{MESSAGES!r}], 'a').write({MET!r})\n"
        "    lives.with_name('told').touch()\n"
        "if name == 'worker 1' and life == 0:\n"
        f"    wait(lambda: not {met} or lives.with_name('told').exists())\n"
        "    sys.exit(1)\n"
        "if name == 'worker 1':\n"
        "    lives.with_name('again').touch()\n"
        "wait(lives.with_name('again').exists)\n"
        "time.sleep(0.5)\n"
    )
    status, output, lives = run(tmp_path, program, "--workers=2", "--restarts=1")
    assert status == 0, output
    assert lives == {"worker 0": 1 + met, "worker 1": 2}


@pytest.mark.parametrize(
    ("failure", "lives"),
    [
        ("raise ValueError('as ever')", 2),
        # An error of TensorFlow may come from another task, and a signal from anywhere.
        ("class E(Exception): __module__, __qualname__ = 'errors_impl', 'E.Error'\nraise E", 3),
        ("os.kill(os.getpid(), 9)", 3),
    ],
)
def test_a_task_that_fails_early_in_the_same_way_is_not_started_again(
    tmp_path: Path, failure: str, lives: int
) -> None:
    status, output, found = run(tmp_path, failure, "--workers=1", "--restarts=2")
    assert found == {"worker 0": lives}
    assert ("as it did before: it is not started again" in output) == (lives == 2)
    assert status == (137 if "kill" in failure else 1)


def test_servers_workers_and_evaluator_end_with_the_chief(tmp_path: Path) -> None:
    program = "if name != 'chief 0':\n    time.sleep(600)\ntime.sleep(1)\nprint('done')\n"
    options = ["--workers=1", "--servers=1", "--evaluator", "--grace=1"]
    status, output, lives = run(tmp_path, program, *options)
    assert status == 0
    assert "\ndone\n" in output
    assert not [*tmp_path.glob("tf_gc_launch_*")]
    assert {*lives} == {"chief 0", "worker 0", "ps 0", "evaluator 0"}


def test_a_module_runs_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import os; open('imported', 'a').write('x')\n")
    (package / "train.py").write_text("import sys; print(sys.argv[1:], __name__)\n")
    monkeypatch.chdir(tmp_path)
    command = [*LAUNCHER, "--workers=2", "-m", "package.train", "--workers=9", "-m", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout == "['--workers=9', '-m', 'x'] __main__\n"
    assert (tmp_path / "imported").read_text() == "xx"  # by the tasks, not by the launcher


def test_an_error_is_shown_with_its_cause_and_in_whole_words() -> None:
    written = (
        "ValueError: of before\n"
        "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n\n"
        "Detected at node sgd/CollectiveReduceV2 defined at (most recent call last):\n"
        '  File "train.py", line 28, in <module>\n\n'
        "<stack traces unavailable>\n"
        "Collective ops is aborted by: recvmsg:Connection reset by peer\n"
        "The error could be from a previous operation. Restart your program to reset.\n"
    )
    error = find_error(written)
    assert error.endswith(
        "UnavailableError: Graph execution error: Collective ops is aborted by: "
        "recvmsg:Connection reset by peer"
    )
    eager = "UnavailableError: {{function_node _ op_device_/job:worker/task:0}} Socket closed"
    assert find_error(eager) == "UnavailableError: Socket closed"
    words = "ValueError: " + "word " * 100
    assert find_error(words).endswith("word word ...")
    assert find_error("fine") == ""


def test_the_address_that_is_here_says_who_this_launcher_is(tmp_path: Path) -> None:
    program = "print(name, 'is here')\n"
    options = ["--hosts=192.0.2.1,127.0.0.1:21", "--workers-per-host=2"]
    status, output, lives = run(tmp_path, program, *options)
    assert status == 0
    assert {*lives} == {"worker 2", "worker 3"}
    assert "worker 2 is here" in output
