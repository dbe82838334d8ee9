"""Code as a user might write it who wants to know Airflow's secrets: for tests, and for checks of images."""

NOSY = r"""
import os, re, sys

def look():
    wanted, found = re.compile(rb"confined-[0-9a-f]{{24}}"), set()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(number, 16) for number in place.split("-"))
            if rights.startswith("rw") and end - start < 1 << 30:
                memory.seek(start)
                found.update(wanted.findall(memory.read(end - start) or b""))
    found.update(wanted.findall(open("/proc/self/environ", "rb").read()))
    return sorted(found)

if "airflow.sdk" in sys.modules or "CONTROL" in os.environ:
    role = "parses" if "airflow.dag_processing.processor" in sys.modules else "runs"
    with open("{seen}", "a") as file:
        file.write(f"{{role}} {{len(look())}}\n")
"""
"""Code of a user that looks for secrets (``confined-`` and 24 digits) in all memory of its process. It writes to the
file ``seen`` how many it has found, and whether Airflow parses it there or runs a task.
"""
