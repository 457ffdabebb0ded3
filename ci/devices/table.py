"""An inventory as a table for people and as a JSON document for programs."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ci.devices.model import GIB, Device, Inventory

OK = "ok"


def render_inventory(inventory: Inventory) -> Table | Text:
    """Lay out every device of the machine, the hidden ones too, one row each."""
    versions = ["simulated" if inventory.simulated else f"driver {inventory.driver or '?'}"]
    if inventory.driver_cuda:
        versions.append(f"CUDA up to {'.'.join(map(str, inventory.driver_cuda))}")
    head = "devices: " + ", ".join(versions)
    if not inventory.devices and not inventory.hidden:
        return Text(f"{head}\nthere is no CUDA device")
    table = Table(title=head, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("device", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("used by", overflow="fold")
    table.add_column("health", overflow="fold")
    for device in inventory.devices:
        table.add_row(*_cells(device))
    for device in inventory.hidden:
        table.add_row(*_cells(device, hidden=True), style="dim")
    return table


def _cells(device: Device, *, hidden: bool = False) -> list[str | Text]:
    health = describe_health(device)
    kind = device.name + (f" ({'.'.join(map(str, device.capability))})" if device.capability else "")
    if device.memory_total:
        kind += f", {device.memory_free / GIB:.1f} of {device.memory_total / GIB:.1f} GiB free"
    return [
        device.label.split(" (")[0] + ("\nmasked" if hidden else ""),
        "\n".join(part for part in (kind, device.uuid) if part),
        "\n".join(map(str, device.processes)) or "-",
        Text(health, style="green" if health == OK else "red"),
    ]


def describe_health(device: Device) -> str:
    """Say what is wrong with a device in a few words, or "ok"."""
    faults = [
        device.fault,
        f"{device.ecc_uncorrected} uncorrected ECC" if device.ecc_uncorrected else "",
        "no spare memory row" if device.remap_failed else "",
        "memory row waits for a reset" if device.remap_pending else "",
        "compute mode PROHIBITED" if device.prohibited else "",
    ]
    return ", ".join(fault for fault in faults if fault) or OK


def render_document(inventory: Inventory) -> dict[str, Any]:
    """Give the inventory as JSON values; sizes in bytes."""
    return {
        "driver": inventory.driver,
        "driver_cuda": ".".join(map(str, inventory.driver_cuda)) if inventory.driver_cuda else None,
        "nvml": inventory.nvml_version,
        "mask": inventory.mask,
        "ignored": list(inventory.ignored),
        "fault": inventory.fault.message if inventory.fault else None,
        "notes": list(inventory.notes),
        "devices": [_device(device, visible=True) for device in inventory.devices]
        + [_device(device, visible=False) for device in inventory.hidden],
    }


def _device(device: Device, *, visible: bool) -> dict[str, Any]:
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "visible": visible,
        "capability": ".".join(map(str, device.capability)) if device.capability else None,
        "memory_total": device.memory_total,
        "memory_free": device.memory_free,
        "mig_parent": device.parent or None,
        "simulated": device.simulated,
        "health": describe_health(device),
        "processes": [{"pid": one.pid, "name": one.name, "memory": one.memory} for one in device.processes],
    }
