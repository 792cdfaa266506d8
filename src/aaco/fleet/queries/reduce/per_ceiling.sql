-- The throughput of each model and device for what its device was measured to be capable of, over all fingerprints.
SELECT model, device, count(DISTINCT fingerprint) AS fingerprints, count(fp32_flops) AS calibrated,
       median(1e12 * throughput / fp32_flops) AS per_tflops, median(1e12 * throughput / dram_bytes_per_s) AS per_tb_per_s
FROM throughputs
GROUP BY ALL
ORDER BY model, device
