"""llama.cpp's own HTTP server for one model: ``llama_server.py MODEL.gguf PORT THREADS``.

Runs in the environment that has ``xllamacpp``; imports nothing of the project.
"""

import signal
import sys

import xllamacpp

CONTEXT = 12_288

path, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parameters = xllamacpp.CommonParams()
parameters.model.path = path
parameters.hostnames = ["127.0.0.1"]
parameters.port = port
parameters.use_jinja = True
parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = CONTEXT, 1, 0
for pool in (parameters.cpuparams, parameters.cpuparams_batch):
    pool.n_threads, pool.poll = threads, 0
parameters.cache_ram_mib, parameters.ui, parameters.fit_params = 1024, False, False
parameters.verbosity = 1
server = xllamacpp.Server(parameters)
print("listening", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
