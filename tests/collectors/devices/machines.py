"""Recorded machines: a server with several kinds of devices, and a small board. Written by hand after the formats that
Linux documents; the processor's and the virtual machine's figures are those of a real one.
"""

from __future__ import annotations

PCI = "sys/bus/pci/devices"
NODE = "sys/devices/system/node"
RAPL = "sys/class/powercap/intel-rapl"


def cpuinfo(cpu: int, socket: int, core: int) -> str:
    return (
        f"processor\t: {cpu}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7543\ncpu MHz\t\t: 2800.000\n"
        f"physical id\t: {socket}\ncore id\t\t: {core}\ncpu cores\t: 2\n\n"
    )


def pci(address: str, code: str, vendor: str, device: str, **more: str) -> dict[str, str]:
    files = {"class": code, "vendor": vendor, "device": device, **more}
    return {f"{PCI}/{address}/{name}": f"{text}\n" for name, text in files.items()}


def node(number: int, cpus: str, kib: int, **figures: int) -> dict[str, str]:
    return {
        f"{NODE}/node{number}/cpulist": f"{cpus}\n",
        f"{NODE}/node{number}/meminfo": f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree: 1 kB\n",
        **{f"{NODE}/node{number}/access0/initiators/{name}": f"{value}\n" for name, value in figures.items()},
    }


SERVER = {
    "proc/cpuinfo": "".join(cpuinfo(cpu, cpu // 4, cpu // 2 % 2) for cpu in range(8)),
    "proc/meminfo": "MemTotal:       500000 kB\nMemFree: 1 kB\nMemAvailable:   300000 kB\nHugePages_Total:       0\n",
    "proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n",
    "proc/pressure/cpu": "some avg10=12.50 avg60=0.60 avg300=1.96 total=22713085028\n",
    "proc/pressure/io": "some avg10=1.00 avg60=0 avg300=0 total=1\nfull avg10=0.50 avg60=0 avg300=0 total=1\n",
    "proc/self/status": "Cpus_allowed_list:\t0-7\n",
    "sys/devices/system/cpu/online": "0-7\n",
    **{f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq": "3700000\n" for cpu in range(8)},
    **{f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq": f"{2_000_000 + cpu}\n" for cpu in range(8)},
    **node(0, "0-3", 1000, read_latency=90, write_latency=95, read_bandwidth=200_000),
    **node(1, "4-7", 2000, read_latency=90, write_latency=95, read_bandwidth=200_000),
    **node(2, "", 4000, read_latency=300, write_latency=0),
    "sys/bus/dax/devices/README": "",
    "sys/devices/LNXSYSTM:00/ndbus0/region0/dax0.0/target_node": "2\n",
    "sys/block/nvme0n1/size": "2048\n",
    "sys/block/nvme0n1p1/size": "1024\n",
    "sys/block/pmem0/size": "8\n",
    "sys/block/sda/size": "4096\n",
    "usr/share/misc/pci.ids": (
        "# list\n1002  Advanced Micro Devices\n\t740f  Aldebaran [Instinct MI210]\n\t\t1002 0c34  a board\n"
        "10de  NVIDIA Corporation\n\t20b5  GA100 [A100 PCIe 80GB]\n15b3  Mellanox\n\t740f  not this one\n"
    ),
    **pci("0000:00:00.0", "0x060000", "0x8086", "0x0d57"),
    **pci("0000:03:00.0", "0x030000", "0x1a03", "0x2000"),
    **pci(
        "0000:41:00.0",
        "0x030200",
        "0x10de",
        "0x20b5",
        max_link_speed="16.0 GT/s PCIe",
        max_link_width="16",
        current_link_speed="8.0 GT/s PCIe",
        current_link_width="8",
    ),
    f"{RAPL}/enabled": "1\n",
    f"{RAPL}:0/energy_uj": "0\n",
    f"{RAPL}:0/max_energy_range_uj": "262143328850\n",
    f"{RAPL}:0:0/energy_uj": "7\n",
    f"{RAPL}:0:0/max_energy_range_uj": "262143328850\n",
    **pci(
        "0000:81:00.0",
        "0x038000",
        "0x1002",
        "0x740f",
        max_link_speed="16.0 GT/s PCIe",
        max_link_width="8",
        numa_node="1",
        gpu_busy_percent="37",
        mem_info_vram_total="68702699520",
        mem_info_vram_used="1048576",
        **{"hwmon/hwmon3/power1_average": "41000000", "hwmon/hwmon3/temp1_input": "35500"},
        **{"hwmon/hwmon3/freq1_input": "1700000000"},
    ),
    **pci(
        "0000:a1:00.0",
        "0x020000",
        "0x15b3",
        "0xa2dc",
        numa_node="-1",
        **{"net/p0/statistics/rx_bytes": "70", "net/p0/statistics/tx_bytes": "7"},
    ),
    **pci("0000:a1:00.1", "0x020000", "0x15b3", "0xa2dc"),
    **pci("0000:c1:00.0", "0x120000", "0x10ee", "0x5000", max_link_speed="Unknown", max_link_width="255"),
    **pci("0000:c2:00.0", "0x120000", "0x1234", "0x0001", max_link_speed="5.0 GT/s PCIe", max_link_width="4"),
    **pci("0000:c2:01.0", "0x120000", "0x1234", "0x0001"),
    **pci("0000:d1:00.0", "0x118000", "0x1022", "0x1502", npu_busy_time_us="1000", npu_current_frequency_mhz="1400"),
}
SERVER_LINKS = {
    "sys/bus/dax/devices/dax0.0": "../../../devices/LNXSYSTM:00/ndbus0/region0/dax0.0",
    f"{PCI}/0000:81:00.0/driver": "../../../bus/pci/drivers/amdgpu",
    f"{PCI}/0000:c2:01.0/physfn": "../0000:c2:00.0",
}
BOARD_LINKS = {
    "sys/class/drm/card0": "../../devices/platform/display/drm/card0",
    "sys/class/drm/card1": "../../devices/platform/soc/fde60000.gpu/drm/card1",
    "sys/class/accel/accel0": "../../devices/platform/soc/fdab0000.npu/accel/accel0",
    "sys/class/accel/accel1": "../../devices/pci0000:00/0000:d1:00.0/accel/accel1",
    "sys/devices/platform/display/drm/card0/device": "../../../display",
    "sys/devices/platform/display/subsystem": "../../../bus/platform",
    "sys/devices/platform/soc/fde60000.gpu/drm/card1/device": "../../../fde60000.gpu",
    "sys/devices/platform/soc/fde60000.gpu/subsystem": "../../../../bus/platform",
    "sys/devices/platform/soc/fde60000.gpu/driver": "../../../../bus/platform/drivers/panthor",
    "sys/devices/platform/soc/fdab0000.npu/accel/accel0/device": "../../../fdab0000.npu",
    "sys/devices/platform/soc/fdab0000.npu/subsystem": "../../../../bus/platform",
    "sys/devices/platform/soc/fdab0000.npu/driver": "../../../../bus/platform/drivers/rocket",
    "sys/devices/pci0000:00/0000:d1:00.0/accel/accel1/device": "../../../0000:d1:00.0",
    "sys/devices/pci0000:00/0000:d1:00.0/subsystem": "../../../bus/pci",
}
BOARD = {
    "sys/devices/platform/soc/fde60000.gpu/of_node/compatible": "rockchip,rk3588-mali\0arm,mali-valhall-csf\0",
    "sys/devices/platform/soc/fde60000.gpu/drm/renderD128/dev": "226:128\n",
    "proc/cpuinfo": (
        "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\n"
        "processor\t: 1\nBogoMIPS\t: 108.00\n\nHardware\t: BCM2711\nModel\t\t: Board\n"
    ),
    "proc/meminfo": "MemTotal:        3884360 kB\n",
}
