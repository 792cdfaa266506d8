"""CUPTI's numbers for the ends of a copy: CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind."""

# Arrays are on the device.
COPY_KINDS = {1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 5: "d2d", 6: "d2d", 7: "d2d", 8: "d2d", 9: "h2h", 10: "p2p",
              11: "h2d", 12: "d2h", 13: "d2d"}
KINDS = ("unknown", "h2d", "d2h", "d2d", "h2h", "p2p", "memset")
PINNED, HOST = 2, (1, 2)  # page-locked; pageable is 1
