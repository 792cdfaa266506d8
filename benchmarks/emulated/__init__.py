"""What the kernel optimiser proves of AMD code in an emulator, claim by claim. Without one it refuses: exit code 6.

`AACO_TINYGRAD=CHECKOUT python -m benchmarks.emulated [--only PART] [--json FILE]` needs clang++ and ld.lld of LLVM 19
or later on PATH. All is kept in benchmarks/results/emulated-DATE.json. No time in it is one of a device.
"""
