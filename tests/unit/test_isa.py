"""profiler.isa against mnemonics labelled by hand from AMD's instruction set documents."""

import pytest

from aaco.profiler.formats.code_object import isa

LABELLED = {
    "valu": "v_add_f32_e32 v_fma_f64 v_cndmask_b32_e32 v_readfirstlane_b32 v_accvgpr_read_b32 v_exp_f32 "
            "v_cmp_lt_u32_e32 v_dual_fmac_f32 v_dot2_f32_f16 v_cvt_pk_bf16_f32 v_nop "
            "v_interp_p1_f32 v_permlane16_b32 V_ADD_F32",
    "salu": "s_add_i32 s_mov_b64 s_cmp_lg_u32 s_cselect_b32 s_and_saveexec_b64 s_getpc_b64 s_movk_i32 s_bfe_u32 "
            "s_set_gpr_idx_on s_setreg_b32 s_getreg_b32 s_mul_hi_u32 s_cmpk_gt_i32 s_andn2_b64",
    "vmem": "buffer_load_dwordx4 buffer_store_short tbuffer_load_format_x global_load_dwordx2 global_store_dwordx4 "
            "global_atomic_add_f32 global_load_lds_dword scratch_store_dword image_sample buffer_wbl2 buffer_inv "
            "image_bvh_intersect_ray",
    "smem": "s_load_dwordx4 s_load_b128 s_buffer_load_dword s_store_dword s_scratch_load_dword s_memtime s_memrealtime "
            "s_dcache_wb s_atomic_add s_gl1_inv s_prefetch_inst",
    "lds": "ds_read_b128 ds_write2_b64 ds_add_u32 ds_bpermute_b32 ds_swizzle_b32 ds_read_b64_tr_b16 ds_load_b32 "
           "lds_direct_load",
    "flat": "flat_load_dword flat_store_dwordx4 flat_atomic_cmpswap",
    "branch": "s_branch s_cbranch_scc1 s_cbranch_execz s_cbranch_vccnz s_setpc_b64 s_swappc_b64 s_call_b64 s_rfe_b64",
    "mfma": "v_mfma_f32_32x32x8_f16 v_mfma_scale_f32_16x16x128_f8f6f4 v_smfmac_f32_16x16x32_bf16 "
            "v_wmma_f32_16x16x16_f16 v_swmmac_f32_16x16x32_f16",
    "barrier": "s_barrier s_barrier_signal s_barrier_wait ds_gws_barrier",
    "waitcnt": "s_waitcnt s_waitcnt_vscnt s_waitcnt_depctr s_wait_loadcnt s_wait_dscnt s_wait_idle",
    "message": "s_sendmsg s_sendmsghalt s_sendmsg_rtn_b32",
    "other": "s_nop s_endpgm s_sleep s_setprio s_trap s_clause s_delay_alu s_inst_prefetch s_icache_inv exp export "
             "s_code_end unheard_of",
}


@pytest.mark.parametrize(("mnemonic", "expected"), [(word, name) for name, words in LABELLED.items()
                                                    for word in words.split()])
def test_the_category_of_a_mnemonic(mnemonic, expected):
    """Mutation: move the rule of `s_` before that of `s_barrier`."""
    assert isa.category(f"{mnemonic} v0, v1") == expected == isa.category(f"  {mnemonic}")


def test_every_category_has_a_label():
    assert {name for _, name in isa.CATEGORIES} == set(LABELLED)
