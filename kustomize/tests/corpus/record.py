#!/usr/bin/env python3
"""Records what kubectl kustomize prints for each case of cases.json: record.py KUBECTL DIRECTORY

A case has files and the directory to build. Its output or its error is recorded beside them, with ROOT for the
directory that the files were in. `own` is what this project prints instead where that differs on purpose."""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

kubectl, directory = sys.argv[1:3]
cases = json.load(open(f"{directory}/cases.json", encoding="utf-8"))


def record(case):
    with tempfile.TemporaryDirectory() as root:
        for path, text in case["files"].items():
            path = os.path.join(root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w", encoding="utf-8", newline="").write(text)
        done = subprocess.run([kubectl, "kustomize", os.path.join(root, case["target"])], capture_output=True,
                              text=True, errors="replace", env={"HOME": root, "PATH": "/usr/bin:/bin"}, timeout=120)
        result = {key: case[key] for key in ("name", "files", "target", "own") if key in case}
        lines = done.stderr.replace(root, "ROOT").splitlines(keepends=True)
        result["warnings"] = [line.rstrip("\n") for line in lines if line.startswith("# Warning")]
        if done.returncode == 0:
            result["output"] = done.stdout
        else:
            error = "".join(line for line in lines if not line.startswith("# Warning"))
            result["error"] = error.removeprefix("error: ").rstrip("\n")
        return result


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    cases = list(pool.map(record, cases))
with open(f"{directory}/cases.json", "w", encoding="utf-8") as out:
    json.dump(cases, out, ensure_ascii=False, indent=1)
    out.write("\n")
print(len(cases), "cases")
