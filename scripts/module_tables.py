"""Which module may use which, for scripts/check-tree: the arrows of ARCHITECTURE.md. A table begins at the
bottom: each module comes after those that it may use, so that there is no circle. A crate's root may use all
of its modules."""

# host/runtime/src, from the operating system up to the C ABI.
RUNTIME = {
    # What everything stands on: errors, settings, the operating system, words of memory.
    "error": set(),
    "logging": set(),
    "settings": {"logging"},
    "seeds": set(),
    "word": set(),
    # Network cards: what the machine has, and what their completions say.
    "verbs": set(),
    # Arithmetic of reductions on arrays in memory.
    "reduction": {"error", "word"},
    "os": {"error"},
    "fork": {"error"},
    "handles": {"error"},
    "config": {"error"},
    "interrupt": {"error"},
    "health": {"error", "interrupt"},
    # Timelines, and ranges for profilers.
    "trace": {"error"},
    # What is asked of a PE's memory, and its check.
    "op": {"error", "word"},
    # The devices.
    "gpu": {"error", "health"},
    "device": {"config", "error", "gpu"},
    # Who is where: cards, nodes, the near PEs. Kernels learn them by the device state.
    "topology": {"config", "device", "error", "seeds"},
    "device_state": {"error", "gpu", "health", "topology", "verbs"},
    "kernel": {"config", "device", "device_state", "error", "gpu", "handles", "health", "interrupt", "op", "trace"},
    # PEs: those of this host, how all meet, and rounds of host calls.
    "node": {"error", "health", "os", "seeds", "topology"},
    "plugin": set(),
    "boot": {"config", "error", "node", "plugin"},
    "collective": {"error", "health", "node", "topology", "trace"},
    # Teams: members, the rounds of their host calls, their places and slot sets.
    "team": {"collective", "error", "node", "topology"},
    # Symmetric memory, and the way to PEs that do not map it.
    "memory": {"collective", "config", "error", "gpu", "node", "os", "topology"},
    # What texts about faults learn of it.
    "crash": {"memory"},
    "net": {"config", "error", "gpu", "health", "kernel", "memory", "node", "os", "seeds", "topology", "verbs", "word"},
    # Who carries operations out, and what holds it all.
    "exec": {"config", "error", "gpu", "health", "kernel", "net", "op", "topology", "trace", "word"},
    "world": {
        "boot", "collective", "config", "crash", "device", "device_state", "error", "exec", "fork", "health", "kernel",
        "memory", "net", "node", "op", "os", "reduction", "team", "topology", "trace", "word",
    },
    "capi": {
        "boot", "config", "device", "error", "exec", "fork", "gpu", "handles", "interrupt", "kernel", "logging", "memory",
        "node", "op", "plugin", "settings", "team", "topology", "trace", "verbs", "world",
    },
    # Entry points of fuzz targets.
    "fuzzing": {"boot", "config", "net", "node", "topology"},
}

# device/cpu/src, from what a kernel and its scheduler share up to the compiler.
DEVICE_CPU = {
    "error": set(),
    "lock": set(),
    "limits": set(),
    "monotonic": set(),
    "optimization": set(),
    "signals": set(),
    "token": set(),
    # From a source to an object.
    "cache": {"error"},
    "dynamic_shared": {"token"},
    "headers": {"cache"},
    "instead": set(),
    "ptx": {"token"},
    "scan": {"token"},
    "source": set(),
    "toolchain": {"error"},
    # Where a thread is, and who waits for whom.
    "context": set(),
    "function": set(),
    "lines": {"function"},
    "padding": set(),
    "stack": set(),
    "stack_trace": {"function", "lines", "source"},
    "warp": set(),
    "waiting": {"context", "warp"},
    # A launch: its code, what watches it, how it ends.
    "check_mode": set(),
    "code": {"check_mode", "context", "lines", "source", "stack_trace"},
    "check": {"check_mode", "code", "context", "lines", "lock", "padding", "signals", "stack_trace"},
    "outcome": set(),
    "kernel_trace": {"outcome"},
    "launch": {"check", "code", "kernel_trace", "limits", "outcome", "stack_trace"},
    # What kernels call.
    "hooks": {"context", "launch", "monotonic", "outcome", "stack_trace"},
    "trace_hooks": {"context", "hooks", "kernel_trace", "launch", "outcome"},
    # OS threads that run blocks, and who looks at them.
    "os_thread": {"context", "launch", "stack"},
    "crash": {"function", "os_thread", "outcome", "signals", "stack", "stack_trace"},
    "watch": {"context", "hooks", "monotonic", "os_thread", "signals"},
    "pool": {"lock"},
    "idle": {"monotonic"},
    "block": {
        "check", "context", "hooks", "idle", "launch", "monotonic", "os_thread", "outcome", "signals", "stack",
        "stack_trace", "waiting", "warp",
    },
    "run": {"block", "code", "launch", "limits", "outcome", "pool", "watch"},
    # What programs hold.
    "module": {
        "cache", "check", "check_mode", "code", "context", "crash", "error", "hooks", "launch", "limits", "lines",
        "outcome", "run", "signals", "source", "stack_trace", "trace_hooks",
    },
    "compile": {
        "cache", "check_mode", "dynamic_shared", "error", "headers", "instead", "limits", "module", "optimization",
        "padding", "ptx", "scan", "source", "toolchain",
    },
    # Entry points of fuzz targets.
    "fuzzing": {"cache"},
}

# host/api, from addresses up to streams.
API = {
    "device": set(),
    "element": set(),
    "card_word": set(),
    "embedded": set(),
    "loaded": set(),
    "error": set(),
    "forked": set(),
    "pe": set(),
    "table": set(),
    "runtime": {"embedded", "error", "loaded", "table"},
    "doctor": {"error", "runtime"},
    "gpu": {"error", "runtime"},
    "source": {"error"},
    "near": {"forked", "pe"},
    "near_pes": {"pe"},
    "world": {"device", "error", "forked", "near", "near_pes", "pe", "runtime"},
    "builder": {"device", "error", "runtime", "world"},
    "run": {"builder", "error", "world"},
    "testing": {"builder", "pe", "world"},
    "slice": {"element", "error", "forked", "near", "pe", "world"},
    "heap": {"element", "error", "slice", "world"},
    "stream": {"error", "world"},
    "order": {"error", "stream", "world"},
    "context": {"error", "world"},
    "rma": {"element", "error", "near", "pe", "slice", "stream"},
    "atomic": {"element", "error", "pe", "slice"},
    "wait": {"element", "error", "slice", "stream"},
    "signal": {"element", "error", "pe", "slice", "stream", "wait", "world"},
    "strided": {"element", "error", "pe", "signal", "slice", "stream"},
    "put_signal": {"element", "error", "near", "pe", "signal", "slice", "stream"},
    "nbi": {"element", "error", "pe", "put_signal", "signal", "slice", "world"},
    "team": {"error", "forked", "pe", "runtime", "world"},
    "number": {"element"},
    "team_stream": {"element", "error", "number", "slice", "stream", "team", "world"},
    "collective": {"element", "error", "number", "slice", "team"},
    "args": {"element", "heap", "signal", "slice", "team"},
    "kernel": {"args", "error", "runtime", "source", "stream", "world"},
    "cudarc": {"device", "element", "error", "pe", "slice", "world"},
}

# host/bin/src/perf: what all measures share, then a module for each.
PERF = {
    "environment": set(),
    "job": set(),
    "progress": {"job"},
    "gpu": {"job"},
    "stats": {"job"},
    "args": set(),
    "spread": {"args", "job"},
    "text": set(),
    "report": {"args", "environment", "job", "stats", "text"},
    "table": {"report", "text"},
    "plot": {"environment", "job", "report", "text"},
    "plot_record": {"args", "job", "plot", "report"},
    "lines": {"job"},
    "summary": {"args", "job", "report", "stats", "text"},
    "peer": {"job", "report", "summary"},
    "host": {"args", "environment", "job", "lines", "peer", "progress", "report", "stats"},
    "shmem": {"args", "environment", "job", "lines", "peer", "progress", "report", "stats"},
    "startup": {"args", "environment", "gpu", "job", "peer", "progress", "report", "stats", "text"},
    "device": {"args", "environment", "gpu", "job", "peer", "plot", "progress", "report", "spread", "startup", "stats"},
    "far": {"args", "environment", "gpu", "job", "peer", "progress", "report", "stats"},
    "mixed": {"args", "environment", "job", "peer", "progress", "report", "stats"},
    "moe": {"args", "device", "environment", "job", "progress", "report", "spread", "stats"},
    "cli": {"args", "device"},
}

# crate root -> its table.
TABLES = {
    "host/runtime/src/lib.rs": RUNTIME,
    "device/cpu/src/lib.rs": DEVICE_CPU,
    "host/api/lib.rs": API,
    "host/bin/src/perf/main.rs": PERF,
}
