//! Stock's outputters of single runners: `overstatestage` and `virt_query`. Not in 3008.

use saltern_python::node::{Node, sorted_entries};
use saltern_wire::msgpack::Value;

use crate::{Color, OutputOptions};

/// The stages of an orchestration (`salt/output/overstatestage.py`). Nothing is what it prints where
/// stock raises an exception; so of the others here.
pub(crate) fn overstate_stage(value: &Value, options: &OutputOptions) -> Option<String> {
    let (blue, end) = (options.colors.code(Color::LightBlue), options.colors.end());
    let mut out = String::new();
    for group in items(value)? {
        for (name, stage) in group.as_map()? {
            out.push_str(&format!("{blue}{}: {end}\n", saltern_python::str(name)));
            let Node::Dict(stage) = Node::read(stage).ok()? else {
                items(stage).filter(|items| items.is_empty())?;
                continue;
            };
            for (key, value) in sorted_entries(&stage)? {
                let line = format!("    {blue}{}: {}{end}\n", key.text(), value.text());
                out.push_str(&line);
            }
        }
    }
    Some(out)
}

/// The items over which Python would iterate; an empty dict or text counts as an empty list.
fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        Value::Map(entries) if entries.is_empty() => Some(&[]),
        Value::Str(text) if text.is_empty() => Some(&[]),
        _ => None,
    }
}

/// Virtual machines by host (`salt/output/virt_query.py`). Stock looks for each machine outside `data`
/// as well as in it.
pub(crate) fn virt_query(value: &Value) -> Option<String> {
    let mut out = String::new();
    for (host, found) in entries(value.get("data")?)? {
        let host_name = saltern_python::str(host);
        out.push_str(&format!("{host_name}\n"));
        for (name, _) in entries(found.get("vm_info")?)? {
            out.push_str(&format!("  {}\n", saltern_python::str(name)));
            let machines = of_key(value, host)?.get("vm_info")?;
            machine(of_key(machines, name)?, &host_name, &mut out)?;
        }
    }
    Some(out)
}

fn machine(machine: &Value, host: &str, out: &mut String) -> Option<()> {
    machine.as_map()?;
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    for (field, label) in [("cpu", "CPU"), ("mem", "Memory"), ("state", "State")] {
        if let Some(value) = machine.get(field) {
            line(format!("    {label}: {}", saltern_python::str(value)));
        }
    }
    if let Some(graphics) = machine.get("graphics") {
        graphics.as_map()?;
        if graphics.get("type").and_then(Value::as_str) == Some("vnc") {
            let port = saltern_python::str(graphics.get("port")?);
            line(format!("    Graphics: vnc - {host}:{port}"));
        }
    }
    for (name, disk) in machine.get("disks").map_or(Some(&[][..]), Value::as_map)? {
        line(format!("    Disk - {}:", saltern_python::str(name)));
        let field = |name| disk.get(name).map(saltern_python::str);
        line(format!("      Size: {}", field("disk size")?));
        line(format!("      File: {}", field("file")?));
        line(format!("      File Format: {}", field("file format")?));
    }
    for (address, card) in machine.get("nics").map_or(Some(&[][..]), entries)? {
        line(format!("    Nic - {}:", saltern_python::str(address)));
        let (_, source) = card.get("source")?.as_map()?.first()?;
        line(format!("      Source: {}", saltern_python::str(source)));
        let kind = saltern_python::str(card.get("type")?);
        line(format!("      Type: {kind}"));
    }
    Some(())
}

/// The entries of a dict; an empty list or text has none either.
fn entries(value: &Value) -> Option<&[(Value, Value)]> {
    match value {
        Value::Map(entries) => Some(entries),
        Value::Array(items) if items.is_empty() => Some(&[]),
        Value::Str(text) if text.is_empty() => Some(&[]),
        _ => None,
    }
}

fn of_key<'a>(dict: &'a Value, key: &Value) -> Option<&'a Value> {
    let mut entries = dict.as_map()?.iter();
    entries
        .find(|(known, _)| known == key)
        .map(|(_, value)| value)
}
