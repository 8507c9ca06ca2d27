"""G: what importing the library costs a process."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from bench.field import Side
from bench.processes import ROOT

RSS = "print(int(open('/proc/self/status').read().partition('VmRSS:')[2].split()[0]) / 1024)"


async def _python(code: str) -> tuple[float, str]:
    """Milliseconds from its start to its end, and what it printed."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"`{code}` failed")
    return (time.perf_counter() - began) * 1000, said.decode()


async def imports(side: Side) -> dict[str, float]:
    """Milliseconds beyond an empty process's, and the resident size after it in MB."""
    code = side.cls.imports or f"import {side.cls.module}"
    await _python(code)  # its bytecode is written
    taken = [await _python(code) for _ in range(side.sizes.imports)]
    bare = [await _python("pass") for _ in range(side.sizes.imports)]
    rss = [float((await _python(f"{code}\n{RSS}"))[1]) for _ in range(side.sizes.imports)]
    return {
        "Gimport_ms": statistics.median(ms for ms, _ in taken) - statistics.median(ms for ms, _ in bare),
        "Grss_mb": statistics.median(rss),
    }
