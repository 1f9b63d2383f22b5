#!/usr/bin/env python3
"""The command line from outside: help, completion, the manual page, wrong usage, streams that are closed or full."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import MODELS, PROGRAM, check, environment, finish, folder, lone_program, not_run, refused, run  # noqa: E402

COMMANDS = ["run", "logits", "verify", "tokenize", "detokenize", "info", "devices", "bench", "synth", "help", "version"]
DENSE = os.path.join(MODELS, "k2-dense")

# ---- help --------------------------------------------------------------------------------------------------------------

overview = run("help")
for words in ((), ("help",), ("--help",), ("-h",)):
    r = run(*words)
    if words:
        check(f"help {words}", r.code == 0 and r.out == overview.out and r.err == "", r)
    else:
        check("no command", r.code == 2 and r.out == b"" and "command is missing" in r.err, r)
for command in COMMANDS:
    check(f"overview names {command}", f"\n  {command} ".encode() in overview.out)
    pages = [run("help", command), run(command, "--help"), run("--help", command)]
    check(f"help {command}", all(p.code == 0 and p.out == pages[0].out and p.err == "" for p in pages), pages)
    check(f"help {command} shows usage", pages[0].out.startswith(f"Usage: baltoro {command}".encode()), pages[0])
for words in (("version",), ("--version",)):
    r = run(*words)
    check(f"version {words}", r.code == 0 and r.out.startswith(b"baltoro ") and r.out.count(b"\n") == 1 and r.err == "", r)

# ---- how much is said -----------------------------------------------------------------------------------------------------

WRITE = ("run", "models/demo-k2", "--temperature", "0", "-n", "4", "-p", "The capital of France is")
plain, more = run(*WRITE), run(*WRITE, "-v", env={"BALTORO_THREADS": "1"})
for part in ("from the environment: --threads 1", "files: 1, 4.4 MB", "tokenizer: 1528 ids", "engine: ", "1 thread, "):
    check(f"verbose says {part!r}", part in more.err and part not in plain.err, more)
check("verbose: the answer is the same", plain.out == more.out and plain.code == more.code == 0, more)
refused("quiet and verbose", 2, "--quiet and --verbose exclude each other", *WRITE, "-qv")
refused("both from the environment", 2, "BALTORO_QUIET and BALTORO_VERBOSE exclude each other", *WRITE,
        env={"BALTORO_QUIET": "1", "BALTORO_VERBOSE": "1"})
r = run(*WRITE, "-v", env={"BALTORO_QUIET": "1"})
check("a flag beats the other's environment name: verbose", "engine: " in r.err, r)
r = run(*WRITE, "-q", env={"BALTORO_VERBOSE": "1"})
check("a flag beats the other's environment name: quiet", r.code == 0 and r.err == "", r)
k3 = folder()
for name in os.listdir("models/demo-k2"):
    os.symlink(os.path.abspath(os.path.join("models/demo-k2", name)), os.path.join(k3, name))
for name in ("tiktoken.model", "tokenizer_config.json"):
    if os.path.exists(os.path.join(k3, name)):
        os.remove(os.path.join(k3, name))
    os.symlink(os.path.abspath(os.path.join("models/demo-k3", name)), os.path.join(k3, name))
r = run("run", k3, *WRITE[2:])
check("another model's tokenizer is told", "the tokenizer has 1792 ids, the model 1528: see that its files are of this model" in r.err, r)

# ---- completion and manual page -------------------------------------------------------------------------------------------

COMPLETE = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_baltoro
printf '%s\\n' "${COMPREPLY[@]}"
"""
scripts = folder()
for shell in ("bash", "zsh", "fish"):
    r = run("help", "--completion", shell)
    check(f"completion for {shell}", r.code == 0 and b"max-new-tokens" in r.out and b"detokenize" in r.out, r)
    path = os.path.join(scripts, shell)
    with open(path, "wb") as f:
        f.write(r.out)
    if shutil.which(shell) is None:
        not_run(f"completion for {shell} parses", f"{shell} is not installed")
        continue
    syntax = subprocess.run([shell, "-n", path], capture_output=True)
    check(f"completion for {shell} parses", syntax.returncode == 0, syntax.stderr)


def complete(*words):
    r = subprocess.run(["bash", "-c", COMPLETE, "bash", os.path.join(scripts, "bash"), *words], capture_output=True, text=True)
    return set(r.stdout.split())


def complete_fish(line):
    """The words that fish offers for a line."""
    words = ["fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"', os.path.join(scripts, "fish"), line]
    r = subprocess.run(words, capture_output=True, text=True)
    return {offer.split("\t")[0] for offer in r.stdout.splitlines()}


if shutil.which("fish"):
    check("fish completes commands", complete_fish("baltoro de") == {"detokenize", "devices"}, complete_fish("baltoro de"))
    check("fish completes choices", complete_fish("baltoro run --kv-dtype ") == {"f32", "bf16"})
    check("fish completes topics", complete_fish("baltoro help ver") == {"verify", "version"})
else:
    not_run("completion in fish", "fish is not installed")
check("completes commands", complete("baltoro", "de") == {"detokenize", "devices"}, complete("baltoro", "de"))
check("completes options", complete("baltoro", "run", "--top") == {"--top-k", "--top-p"})
check("completes options of the command only", "--chunk" not in complete("baltoro", "run", "--"))
check("completes choices", complete("baltoro", "run", "--kv-dtype", "") == {"f32", "bf16"})
check("choices are the command's own", complete("baltoro", "synth", "--dtype", "") == {"bf16", "fp8"} and
      complete("baltoro", "run", "--dtype", "") == {"f32"})
check("completes topics", complete("baltoro", "help", "ver") == {"verify", "version"})
man = run("help", "--man")
check("manual page", man.code == 0 and man.out.startswith(b".TH BALTORO 1") and b"BALTORO_TOP_K" in man.out, man)
if shutil.which("groff"):
    r = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=man.out, capture_output=True)
    check("manual page has no faults", r.returncode == 0 and r.stderr == b"", r.stderr)
refused("completion for another shell", 2, "must be one of: bash zsh fish", "help", "--completion", "csh")

# ---- wrong usage ------------------------------------------------------------------------------------------------------------

for command in ("serve", "quantize", "pull", "doctor", "selftest"):
    refused(f"planned {command}", 2, f"{command} is not in this build", command)
refused("unknown command", 2, "did you mean verify?", "verfy")
refused("option before the command", 2, "the command comes first", "--json", "info")
refused("unknown option", 2, "did you mean --temperature?", "run", DENSE, "--temprature", "1")
refused("option of another command", 2, "belongs to logits, verify", "run", DENSE, "--chunk", "1")
refused("no value", 2, "--top-k needs a value", "run", DENSE, "--top-k")
refused("one argument too many", 2, "unexpected argument 'x'", "run", DENSE, "x")
for text in ("5x", "1e99", "", "NaN", "-2", "0x5"):
    refused(f"top-k {text!r}", 2, "--top-k is", "run", DENSE, "--top-k", text)
    refused(f"temperature {text!r}", 2, "--temperature is", "run", DENSE, "--temperature", "-1" if text == "0x5" else text)
refused("environment", 2, "BALTORO_TOP_P is '7'", "run", DENSE, env={"BALTORO_TOP_P": "7"})
for device in ("cuda", "cuda:1", "vulkan", "webgpu", "wgpu", "metal:0"):
    refused(f"device {device}", 2, "which has: cpu", "info", DENSE, "--device", device)
for dtype in ("bf16", "f16"):
    refused(f"dtype {dtype}", 2, "which has: f32", "verify", DENSE, "x", "--dtype", dtype)
for command in ("run", "chat", "logits", "tokenize", "detokenize", "info", "bench"):
    options = {"logits": ("--ids", "1", "--output", "x")}.get(command, ())
    with lone_program():
        refused(f"{command} without MODEL", 2, "MODEL is missing, and the demo model", command, *options)
if b"--ablate" in run("help", "run").out:  # the test build
    check("a planted fault", run("verify", DENSE, os.path.join(DENSE, "expected.safetensors"), "--ablate", "rope=off").code == 1)
    refused("an unknown fault", 2, "ablate", "verify", DENSE, os.path.join(DENSE, "expected.safetensors"), "--ablate", "nonsense=1")
else:
    refused("no planted faults", 2, "unknown option --ablate", "verify", DENSE, "x", "--ablate", "rope=off")
refused("verify without EXPECTED", 2, "EXPECTED.safetensors is missing", "verify", DENSE)
r = run("tokenize", "\x1b[31m\x07", "x")
check("control characters do not reach the terminal", r.code == 3 and "\x1b" not in r.err and "\x07" not in r.err, r)
r = run("run", b"\xff\xfe", "-p", "x")
check("a name that is no UTF-8", r.code == 3 and r.err.startswith("baltoro: "), r)

# ---- finding the model --------------------------------------------------------------------------------------------------------

home, cache = folder(), folder()
refused("missing model", 3, "nowhere/at-all", "info", "nowhere/at-all", env={"HOME": home})
snapshot = os.path.join(cache, "models--ORG--NAME", "snapshots", "abc")
os.makedirs(os.path.dirname(snapshot))
shutil.copytree(DENSE, snapshot)
for env in ({"HF_HUB_CACHE": cache}, {"HUGGINGFACE_HUB_CACHE": cache}):
    r = run("info", "ORG/NAME", "--json", env=env)
    check(f"in the cache by {list(env)}", r.code == 0 and snapshot.encode() in r.out, r)
r = run("info", env={"BALTORO_MODEL": DENSE})
check("BALTORO_MODEL", r.code == 0, r)
r = run("info", "--model-dir", DENSE, env={"BALTORO_MODEL": "nowhere"})
check("a flag beats the environment", r.code == 0, r)
r = run("info", "-m", os.path.join(MODELS, "k2-yarn", "model.safetensors"))
check("one file as the model", r.code == 0, r)

# ---- streams ---------------------------------------------------------------------------------------------------------------------

with open("/dev/full", "wb") as full:
    r = subprocess.run([PROGRAM, "help"], stdout=full, stderr=subprocess.PIPE, env=environment())
check("full disk", r.returncode == 4 and b"stdout: cannot write" in r.stderr, r.stderr)
r = subprocess.run(["sh", "-c", '"$0" help run >&-', PROGRAM], stderr=subprocess.PIPE, env=environment())
check("closed stdout", r.returncode == 1 and b"stdout: cannot write" in r.stderr, r.returncode, r.stderr)
r = subprocess.run(["sh", "-c", '"$0" info "$1" <&- 2>&-', PROGRAM, DENSE], stdout=subprocess.PIPE, env=environment())
check("closed stdin and stderr", r.returncode == 0 and r.stdout.startswith(b"k2_horizon"), r.returncode)
read, write = os.pipe()
os.close(read)
r = subprocess.run([PROGRAM, "help", "run"], stdout=write, stderr=subprocess.PIPE, env=environment())
os.close(write)
check("a reader that left", r.returncode == 0 and r.stderr == b"", r.returncode, r.stderr)

finish()
