"""measure.py - what the acceptance scripts share: programs of a build, checkpoints, ranks on cores, figures.

Python's standard library only. The scripts beside this file import it; nothing is installed.
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUSY_LOAD = 0.25  # runnable processes per core before we start: above it others disturb the measurement
RUN_LIMIT_S = 300  # for one start of ranks; a hang ends here
BIG_BYTES = 100e6  # a checkpoint above this is timed in shorter blocks


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--build", default=".", help="build directory, after make")
    p.add_argument("--out", help="JSON file; without it BUILD/NAME.json")
    p.add_argument("--work", help="folder for checkpoints of random weights; without it BUILD/benchmarks/models")
    p.add_argument("--mpirun", default=os.environ.get("MPIRUN", "mpirun"), help="launcher")
    return p


def numbers(text):
    return [int(word) for word in text.split(",") if word]


class Machine:
    """The cores that we may use, and how ranks are put on them."""

    def __init__(self, mpirun):
        self.mpirun = mpirun
        self.cpus = sorted(os.sched_getaffinity(0))
        self.cores = min(self._count_cores(), self._quota() or len(self.cpus))
        self.is_open_mpi = bool(re.search(r"Open MPI|OpenRTE|Open RTE", self._output([mpirun, "--version"])))
        self.can_bind = {}

    @staticmethod
    def _output(command):
        try:
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            sys.exit("%s cannot be started: %s" % (command[0], error))

    def _count_cores(self):
        seen = set()
        for cpu in self.cpus:
            try:
                with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu) as f:
                    seen.add(f.read().strip())
            except OSError:
                seen.add(str(cpu))
        return len(seen)

    @staticmethod
    def _quota():
        """CPUs that the cgroup grants; None without a limit."""
        try:
            with open("/sys/fs/cgroup/cpu.max") as f:
                quota, period = f.read().split()
            return None if quota == "max" else max(1, int(quota) // int(period))
        except (OSError, ValueError):
            return None

    def environment(self, is_shared):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_btl_base_warn_component_unused="0")
        env.pop("TUTTI_INJECT_DELAY_US", None)
        env.pop("TUTTI_INJECT_MB_S", None)
        if is_shared:
            env.update(OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        return env

    def launcher(self, ranks, threads):
        """The words before the program, the environment, and how ranks sit on cores."""
        words = [self.mpirun, "-n", str(ranks)]
        is_shared = ranks * threads > self.cores
        env = self.environment(is_shared)
        if not self.is_open_mpi:
            return words, env, "as the launcher does"
        if is_shared:
            return words + ["--bind-to", "none", "--oversubscribe"], env, "oversubscribed"
        if threads == 1 and ranks > 1 and self._binds(ranks, env):
            return words + ["--bind-to", "core", "--map-by", "core"], env, "one core per rank, bound by the launcher"
        return words + ["--bind-to", "none"], env, "cores divided and bound by tutti"

    def _binds(self, ranks, env):
        if ranks not in self.can_bind:
            command = [self.mpirun, "-n", str(ranks), "--bind-to", "core", "--map-by", "core", "true"]
            done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.can_bind[ranks] = done.returncode == 0
        return self.can_bind[ranks]

    def describe(self):
        model = platform.processor()
        try:
            with open("/proc/cpuinfo") as f:
                model = re.search(r"model name\s*:\s*(.*)", f.read()).group(1)
        except (OSError, AttributeError):
            pass
        with open("/proc/meminfo") as f:
            kib = int(re.search(r"MemTotal:\s*(\d+)", f.read()).group(1))
        return {"cpu": model, "cores": self.cores, "cpus": len(self.cpus), "memory_bytes": kib * 1024,
                "kernel": platform.release(), "load_before": list(os.getloadavg()),
                "mpi": self._output([self.mpirun, "--version"]).splitlines()[0]}


class Session:
    """One run of a script: its arguments, machine, checkpoints, and the JSON that comes out."""

    def __init__(self, name, args):
        self.name, self.args, self.begin = name, args, time.monotonic()
        self.machine = Machine(args.mpirun)
        build = os.path.abspath(args.build)
        self.tutti = self._program(build, "tutti")
        self.bench_delay = self._program(build, "benchmarks/bench_delay")
        self.make_model = self._program(build, "benchmarks/make-model")
        self.work = args.work or os.path.join(build, "benchmarks", "models")
        self.out = args.out or os.path.join(build, name + ".json")
        self.result = {"script": name, "when": datetime.datetime.now(datetime.timezone.utc).isoformat(),
                       "command": sys.argv, "machine": self.machine.describe(), "runs": []}
        load = self.result["machine"]["load_before"][0]
        if load > BUSY_LOAD * self.machine.cores:
            self.say("warning: %.1f processes are running on %d cores: these figures are not to be quoted"
                     % (load, self.machine.cores))

    @staticmethod
    def _program(build, name):
        path = os.path.join(build, name)
        if not os.access(path, os.X_OK):
            sys.exit("%s is missing: give the build directory with --build, after make" % path)
        return path

    def say(self, text):
        print("[%6.1f s] %s" % (time.monotonic() - self.begin, text), file=sys.stderr, flush=True)

    def checkpoint(self, name):
        """'tiny' is the model that ships; SHAPE or SHAPE:LAYERS is a checkpoint of random weights, made:SHAPE:LAYERS one in memory; else a folder."""
        if name == "tiny":
            return os.path.join(SOURCE, "models", "tiny-moe")
        if os.path.isdir(name) or name.startswith("made:"):
            return name
        shape, _, layers = name.partition(":")
        path = os.path.join(self.work, name.replace(":", "-"))
        if not os.path.exists(os.path.join(path, "config.json")):
            os.makedirs(self.work, exist_ok=True)
            command = [self.make_model, "--shape", shape, "--out", path] + (["--layers", layers] if layers else [])
            self.say("making " + path)
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                sys.exit("no checkpoint of shape '%s'" % name)
        return path

    @staticmethod
    def is_big(path):
        if path.startswith("made:"):
            return True
        files = [os.path.join(path, f) for f in os.listdir(path) if f.endswith(".safetensors")]
        return sum(os.path.getsize(f) for f in files) > BIG_BYTES

    def run(self, ranks, threads, options, path, extra_env=None):
        """Starts bench_delay; its JSON lines, and how it was started."""
        records, start = self._start(ranks, threads, [self.bench_delay], options + [path], extra_env)
        return records[0], [r for r in records if r["record"] == "steps"], start

    @staticmethod
    def source(name):
        """The words that name a model to tutti: SHAPE or SHAPE:LAYERS is made in memory; 'tiny' ships; else a folder or file."""
        if name == "tiny":
            return [os.path.join(SOURCE, "models", "tiny-moe")]
        if os.path.exists(name):
            return [name]
        shape, _, layers = name.partition(":")
        return ["--shape", shape] + (["--layers", layers] if layers else [])

    def bench(self, ranks, threads, options):
        """Starts tutti bench; its run record, the records of its cases, and how it was started."""
        records, start = self._start(ranks, threads, [self.tutti, "bench", "--json"], options, None)
        return records[0], [r for r in records if r["record"] in ("prefill", "decode")], start

    def ask(self, command, options):
        """What tutti info or plan says of something."""
        done = subprocess.run([self.tutti, command, "--json"] + options, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              check=False, timeout=RUN_LIMIT_S)
        if done.returncode != 0:
            sys.exit("tutti %s %s: exit code %d" % (command, " ".join(options), done.returncode))
        return json.loads(done.stdout)

    def _start(self, ranks, threads, program, options, extra_env):
        words, env, binding = self.machine.launcher(ranks, threads)
        env.update(extra_env or {})
        command = words + program + ["--threads", str(threads)] + options
        self.say("%d ranks x %d threads (%s): %s" % (ranks, threads, binding, " ".join(options)))
        try:
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                  check=False, timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            sys.exit("%s: no end after %d s" % (" ".join(command), RUN_LIMIT_S))
        if done.returncode != 0:
            sys.exit("%s: exit code %d" % (" ".join(command), done.returncode))
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return records, {"command": command, "binding": binding, "environment": extra_env or {}}

    def save(self):
        self.result["seconds"] = time.monotonic() - self.begin
        self.result["machine"]["load_after"] = list(os.getloadavg())
        with open(self.out, "w") as f:
            json.dump(self.result, f)
            f.write("\n")
        self.say("raw samples, machine and limits: " + self.out)


def spread(values):
    """Median, quartiles and ends."""
    values = sorted(values)
    quarter = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "quartiles": [quarter[0], quarter[2]], "min": values[0],
            "max": values[-1], "n": len(values)}


def block_medians(lane):
    return [statistics.median(block) for block in lane["step_ns"]]


def phase_ns_per_step(lane, phase):
    """One value per rank."""
    totals = lane["phases"].get(phase)
    return [ns / lane["steps_in_phases"] for ns in totals["ns"]] if totals else [0.0]


def phase_bytes_per_step(lane, phase):
    totals = lane["phases"].get(phase)
    return sum(totals["bytes"]) / lane["steps_in_phases"] if totals else 0.0


def table(head, rows):
    """A markdown table."""
    lines = [head, ["---"] * len(head)] + rows
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def temporary(suffix):
    handle, path = tempfile.mkstemp(suffix=suffix)
    os.close(handle)
    return path
