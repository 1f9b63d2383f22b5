"""What the cli_*.py tests share: running the program, counting, and models small enough to make on the spot.

The program is $BALTORO, by default build/test/baltoro. A test is one call of `check`; the last line of a script is
`N passed, N failed, N skipped`.
"""
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(os.environ.get("BALTORO", "build/test/baltoro"))
MODELS = os.path.abspath("tests/data/models")
BOS, END, SPECIAL = 0, 1, 639  # of the tokenizer below
PAIRS = [(a, b) for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"][:381]

_counts = {"passed": 0, "failed": 0, "skipped": 0}
_folders = []


def check(name, good, *detail):
    """Counts one test; prints a line if it failed."""
    _counts["passed" if good else "failed"] += 1
    if not good:
        print("FAILED", name, *[str(d)[-600:] for d in detail])
    return good


def not_run(name, why):
    """Counts a test that this machine cannot run."""
    _counts["skipped"] += 1
    print("NOT RUN", name + ":", why)


def finish():
    """Removes what was made, prints the closing line, ends the script."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{n} {what}" for what, n in _counts.items()))
    sys.exit(1 if _counts["failed"] or not _counts["passed"] else 0)


def folder():
    """A fresh folder that finish() removes."""
    path = tempfile.mkdtemp(prefix="baltoro-cli-")
    _folders.append(path)
    return path


def environment(**more):
    """The environment without our own names, so that a person's settings cannot turn a test red. One thread is enough for
    models this small; more wait for each other where tests run side by side."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BALTORO_", "HF_", "HUGGINGFACE_"))}
    kept["BALTORO_THREADS"] = "1"
    kept.update(more)
    return kept


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err.decode("utf-8", "replace")

    def __repr__(self):
        return f"[exit {self.code}] out {self.out[:200]!r} err {self.err[-400:]!r}"


def run(*words, stdin=b"", env=None, timeout=600, **more):
    """Runs the program with these words; stdin is text or bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    r = subprocess.run([PROGRAM, *[os.fspath(w) if not isinstance(w, (int, float)) else str(w) for w in words]], input=stdin,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**(env or {})), timeout=timeout, **more)
    return Result(r.returncode, r.stdout, r.stderr)


def has_memory(size):
    """Whether this machine may give so many bytes: then nothing of this size is refused, and it would truly be done."""
    return json.loads(run("devices", "--json").out)["memory"]["available"] > size


def start(*words, **more):
    """The same as a process in the background, with pipes. SIGINT reaches it even if a shell ignores it for us."""
    for stream in ("stdin", "stdout", "stderr"):
        more.setdefault(stream, subprocess.PIPE)
    more.setdefault("env", environment())
    return subprocess.Popen([PROGRAM, *words], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **more)


@contextlib.contextmanager
def lone_program():
    """Within it the program is a copy that finds no demo model beside it."""
    global PROGRAM
    kept, PROGRAM = PROGRAM, shutil.copy(PROGRAM, folder())
    try:
        yield
    finally:
        PROGRAM = kept


def refused(name, code, part, *words, **more):
    """The words end in this exit code, with one error line on stderr that holds `part`, and nothing on stdout."""
    r = run(*words, **more)
    lines = [x for x in r.err.splitlines() if x.startswith("baltoro: ")]
    return check(name, r.code == code and part in r.err and len(lines) == 1 and r.out == b"", r)


def library(source):
    """A library to lay under the program by LD_PRELOAD; None: no compiler here, or a sanitizer, which takes none."""
    path = os.path.join(folder(), "under.so")
    if os.environ.get("SANITIZER") or not shutil.which("cc"):
        return None
    made = subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-ldl"], input=source.encode(), capture_output=True)
    return path if made.returncode == 0 else None


# ---- models --------------------------------------------------------------------------------------------------------

def byte_letters():
    """GPT-2's letters for the 256 bytes, by byte."""
    kept = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters, n = {b: chr(b) for b in kept}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + n)
            n += 1
    return letters


def tokenizer():
    """640 ids: begin, end, 256 bytes from 2 on, pairs of letters, one more special token at the end."""
    vocab = {"<|begin|>": BOS, "<|end|>": END}
    for b, letter in sorted(byte_letters().items()):
        vocab[letter] = 2 + b
    for i, (a, b) in enumerate(PAIRS):
        vocab[a + b] = 258 + i
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in ((BOS, "<|begin|>"), (END, "<|end|>"), (SPECIAL, "<|special|>"))]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": [f"{a} {b}" for a, b in PAIRS]}}


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f)


def make_tokenizer(path, bos=False):
    write_json(os.path.join(path, "tokenizer.json"), tokenizer())
    if bos:
        write_json(os.path.join(path, "tokenizer_config.json"), {"add_bos_token": True, "bos_token": "<|begin|>"})


def make_model(base="k2-dense", config=None, generation=None, with_tokenizer=True, bos=False, template=None):
    """A copy of a small model, with the tokenizer above."""
    path = folder()
    for name in os.listdir(os.path.join(MODELS, base)):
        shutil.copy(os.path.join(MODELS, base, name), path)
    with open(os.path.join(path, "config.json")) as f:
        values = json.load(f)
    values.update(config or {})
    write_json(os.path.join(path, "config.json"), values)
    if generation is not None:
        write_json(os.path.join(path, "generation_config.json"), generation)
    if with_tokenizer:
        make_tokenizer(path, bos)
    if template is not None:
        with open(os.path.join(path, "chat_template.jinja"), "w") as f:
            f.write(template)
    return path


# ---- safetensors ------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
