#!/usr/bin/env bash
# Build the emulator: a Bochs that Linux and OpenVINO can use AMX on.
#
#   bench/emulated/bochs.sh CHECKOUT
#
# CHECKOUT is one of bochs-emu/Bochs; commit 783b58fd was used. It is changed in place, once.
set -euo pipefail

cd "$1/bochs"
cpu=cpu
if ! grep -q ia32_xfd $cpu/cpu.h; then
    # Linux gives AMX to programs only on CPUs with XFD, which faults at the first use of tiles so that the kernel can
    # make room for them. The register, the fault, its reason, and what CPUID says of it:
    sed -i '/^  Bit64u ia32_xss;/a\  Bit64u ia32_xfd = 0, ia32_xfd_err = 0;' $cpu/cpu.h
    sed -i '/^  BX_MSR_XSS = /i\  BX_MSR_XFD = 0x1C4,\n  BX_MSR_XFD_ERR = 0x1C5,' $cpu/msr.h
    sed -i '/^  msr_desc\[BX_MSR_XSS\] =/i\
  msr_desc[BX_MSR_XFD] = new MSR_Descriptor("MSR_IA32_XFD", BX_ISA_AMX, ~(BX_CONST64(1) << 18));\
  msr_desc[BX_MSR_XFD_ERR] = new MSR_Descriptor("MSR_IA32_XFD_ERR", BX_ISA_AMX, ~(BX_CONST64(1) << 18));' $cpu/msr.cc
    sed -i '/^    case BX_MSR_XSS:$/i\
    case BX_MSR_XFD: val64 = BX_CPU_THIS_PTR msr.ia32_xfd; break;\
    case BX_MSR_XFD_ERR: val64 = BX_CPU_THIS_PTR msr.ia32_xfd_err; break;' $cpu/msr.cc
    sed -i '/^    case BX_MSR_XSS: /i\
    case BX_MSR_XFD: BX_CPU_THIS_PTR msr.ia32_xfd = val_64; handleAvxModeChange(); break;\
    case BX_MSR_XFD_ERR: BX_CPU_THIS_PTR msr.ia32_xfd_err = val_64; break;' $cpu/msr.cc
    sed -i '/^void .*::handleAvxModeChange/,/^}/s/BX_XCR0_XTILEDATA_MASK)) != 0)/BX_XCR0_XTILEDATA_MASK)) != 0 || BX_CPU_THIS_PTR msr.ia32_xfd)/' $cpu/proc_ctrl.cc
    sed -i '/::BxNoAMX(/,/^}/s/^  BX_ASSERT(0);/\
  if (i->getIaOpcode() == BX_IA_TILERELEASE) { TILERELEASE(i); return; }\
  BX_CPU_THIS_PTR msr.ia32_xfd_err = BX_CPU_THIS_PTR msr.ia32_xfd;\
  exception(BX_NM_EXCEPTION, 0);/' $cpu/proc_ctrl.cc
    sed -i '/^      leaf->eax |= (1<<3);/a\    if (is_cpu_extension_supported(BX_ISA_AMX))\n      leaf->eax |= (1<<4);' $cpu/cpuid.cc
    sed -i '/^      leaf->ecx = xsave_restore\[subfunction\].attr;/a\      if (subfunction == 18) leaf->ecx |= 4;' $cpu/cpuid.cc

    # What is wrong with saved tiles there: half of the rows, rows and columns exchanged, "in use" the wrong way round,
    # and a size that forgets alignment.
    sed -i 's/row < BX_TILE_REGISTERS/row < BX_TILE_MAX_ROWS/' $cpu/xsave.cc
    sed -i '/::xsave_tilecfg_state(/,/^}/{s/tilecfg\[n\]\.rows/tilecfg[n].SWAP/; s/tilecfg\[n\]\.bytes_per_row/tilecfg[n].rows/; s/SWAP/bytes_per_row/}' $cpu/xsave.cc
    sed -i 's/(BX_CPU_THIS_PTR amx->tile_use_tracker == 0)/(BX_CPU_THIS_PTR amx->tile_use_tracker != 0)/' $cpu/xsave.cc
    sed -i '/^static unsigned xsave_max_size_required_by_xsaves_features/,/^}/s/^    if (features & (1 << n))/    if (features \& (1 << n) \&\& (xsave_restore[n].attr \& 2)) max_size = (max_size + 63) \& ~63u;\n&/' $cpu/cpuid.cc
fi

./configure --with-nogui --disable-docbook --enable-all-optimizations --enable-x86-64 --enable-avx --enable-evex \
    --enable-amx --enable-vmx=2 --enable-protection-keys --enable-cet --enable-uintr \
    CFLAGS="-O3 -march=native" CXXFLAGS="-O3 -march=native" >configure.log
make -j"$(nproc)" >make.log 2>&1
ls -l bochs
