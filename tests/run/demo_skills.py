#!/usr/bin/env python3
"""What the demo model's card says about its skills is what tools/demo/evaluate.py measures: no row below its threshold, none
worse than the card has it.

run_tests: release (the transcripts of demo_models.py go through every build)
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check  # noqa: E402

SLACK = 2  # answers in a row that another CPU's rounding may turn


def main():
    r = subprocess.run([sys.executable, "tools/demo/evaluate.py", "--baltoro", cli.PROGRAM], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, env=cli.environment())  # fmt: skip
    check("no skill is below its threshold", r.returncode == 0, r.stdout)
    measured = re.findall(r"^(\S.*?) +(\d+) +([\d.]+) %", r.stdout, re.M)
    with open("models/demo-k2/README.md", encoding="utf-8") as f:
        told = dict((skill, float(share)) for skill, share in re.findall(r"^\| (.+?) \| \d+ \| ([\d.]+) % \|$", f.read(), re.M))
    check("the card has every skill", len(measured) > 10 and {skill for skill, _, _ in measured} == set(told), measured, told)
    for skill, n, share in measured:
        check(f"{skill}: as the card says", float(share) >= told.get(skill, 101) - 100 * SLACK / int(n), share, told.get(skill))
    cli.finish()


main()
