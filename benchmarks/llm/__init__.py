"""`aaco llm` against servers with a known schedule: exactness of times, cost, definitions, tails, size of the record,
the load that a server can take, and the time of the help page.

    python -m benchmarks.llm [--only PART] [--json FILE]

accuracy, against and open_loop are about times: the machine must be quiet and have two CPUs. size writes about 400 MB.
llama needs a server of llama.cpp on PATH, or named by AACO_LLAMA_SERVER.
peers asks other clients, too, where variables name their programs.
"""
