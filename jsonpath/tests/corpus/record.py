#!/usr/bin/env python3
"""Records what kubectl prints for each template of a corpus: record.py KUBECTL jsonpath|go-template DIRECTORY

Each case of DIRECTORY/cases.json has a template; what kubectl prints for it and DIRECTORY/object.json is recorded
beside it. `strict` is there if --allow-missing-template-keys=false changes the result."""

import concurrent.futures
import json
import re
import subprocess
import sys

kubectl, form, directory = sys.argv[1:4]
templates = [case["template"] for case in json.load(open(f"{directory}/cases.json", encoding="utf-8"))]


def run(template, strict):
    command = [kubectl, "label", "--local", "-f", f"{directory}/object.json", "--overwrite", "app=nginx",
               f"-o={form}", f"--template={template}", f"--allow-missing-template-keys={'false' if strict else 'true'}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env={"HOME": "/nonexistent"}, timeout=60)
    if done.returncode == 0:
        return {"output": done.stdout}
    error = done.stderr
    found = re.search(r"Error executing template: (.*)\. Printing more information", error, re.S)
    if form == "go-template":
        found = re.search(r"error executing template \"(?:[^\"\\]|\\.)*\": (.*)\n$", error, re.S)
    if found:
        result = {"error": found[1]}
        if form == "go-template":
            result["output"] = done.stdout.split("Error executing template: ")[0]
        return result
    for prefix in (f"error: error parsing {form} {template}, ", f"error: error parsing template {template}, "):
        if error.startswith(prefix):
            return {"parse": error[len(prefix):].rstrip("\n")}
    raise SystemExit(f"{template}: {error}")


def record(template):
    lenient, strict = run(template, False), run(template, True)
    case = {"template": template, **lenient}
    if strict != lenient:
        case["strict"] = strict
    return case


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    cases = list(pool.map(record, templates))
with open(f"{directory}/cases.json", "w", encoding="utf-8") as out:
    json.dump(cases, out, ensure_ascii=False, indent=1)
    out.write("\n")
print(len(cases), "cases")
