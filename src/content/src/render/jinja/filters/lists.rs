//! Filters that go through lists: Jinja2's `map`, `select`, `groupby`, …, Salt's set theory, and
//! Python's `itertools`.
//!
//! Longer than 500 lines, because it is one table of small filters.

use minijinja::value::Value;

use super::super::args::{Args, Bound};
use super::super::fault::{Fault, Outcome};
use super::super::text::str_of;
use super::super::value::{
    Entries, Key, Kind, dict, is_undefined, list, none, set, tuple, undefined, undefined_fault,
};
use super::super::{Py, is_tests, ops};
use super::Row;

/// The most items that one filter may make.
const MAX_ITEMS: usize = 1_000_000;

pub(super) const FILTERS: &[Row] = &[
    ("batch", &["value", "linecount", "fill_with"], |py, args| {
        let size = usize::try_from(args.int(1, 1)?).unwrap_or(1).max(1);
        let mut rows: Vec<Vec<Value>> = items(py, args)?
            .chunks(size)
            .map(<[Value]>::to_vec)
            .collect();
        if let (Some(fill), Some(last)) =
            (args.get(2).filter(|fill| !fill.is_none()), rows.last_mut())
        {
            while last.len() < size.min(MAX_ITEMS) {
                last.push(fill.clone());
            }
        }
        Ok(list(rows.into_iter().map(list).collect()))
    }),
    ("slice", &["value", "slices", "fill_with"], |py, args| {
        let all = items(py, args)?;
        let slices = usize::try_from(args.int(1, 1)?)
            .unwrap_or(1)
            .clamp(1, MAX_ITEMS);
        let (each, more) = (all.len() / slices, all.len() % slices);
        let mut rows = Vec::new();
        let mut rest = all.as_slice();
        for index in 0..slices {
            let count = each + usize::from(index < more);
            let (row, after) = rest.split_at(count.min(rest.len()));
            rest = after;
            let mut row = row.to_vec();
            if let Some(fill) = args.get(2).filter(|fill| !fill.is_none())
                && index >= more
                && more > 0
            {
                row.push(fill.clone());
            }
            rows.push(list(row));
        }
        Ok(list(rows))
    }),
    (
        "dictsort",
        &["value", "case_sensitive", "by", "reverse"],
        |_, args| {
            let Kind::Dict(entries) = Kind::of(args.need(0)?) else {
                return Err(Fault::other("dictsort needs a dict"));
            };
            let by_value = match args.text(2, "key")?.as_str() {
                "key" => false,
                "value" => true,
                _ => {
                    return Err(Fault::other(
                        "You can only sort by either \"key\" or \"value\"",
                    ));
                }
            };
            let sensitive = args.flag(1, false)?;
            let pairs: Vec<(Value, Value)> = entries.0.lock().values().cloned().collect();
            let keyed = pairs
                .into_iter()
                .map(|(key, value)| {
                    let by = if by_value { &value } else { &key };
                    (folded(by, sensitive), tuple(vec![key, value]))
                })
                .collect();
            ops::sorted(keyed, args.flag(3, false)?).map(list)
        },
    ),
    ("first", &["seq"], |py, args| {
        let first = items(py, args)?.into_iter().next();
        Ok(first.unwrap_or_else(|| undefined("No first item, sequence was empty.")))
    }),
    ("last", &["seq"], |py, args| {
        let last = items(py, args)?.pop();
        Ok(last.unwrap_or_else(|| undefined("No last item, sequence was empty.")))
    }),
    (
        "groupby",
        &["value", "attribute", "default", "case_sensitive"],
        |py, args| group_by(py, args),
    ),
    ("items", &["value"], |_, args| {
        match Kind::of(args.need(0)?) {
            Kind::Undefined(_) => Ok(list(Vec::new())),
            Kind::Dict(entries) => Ok(list(
                entries
                    .0
                    .lock()
                    .values()
                    .map(|(k, v)| tuple(vec![k.clone(), v.clone()]))
                    .collect(),
            )),
            _ => Err(Fault::other("Can only get item pairs from a mapping.")),
        }
    }),
    ("join", &["value", "d", "attribute"], |py, args| {
        let between = args.text(1, "")?;
        let mut parts = Vec::new();
        let mut size = 0;
        for item in items(py, args)? {
            let item = match args.get(2).filter(|name| !name.is_none()) {
                Some(name) => path(&item, name)?,
                None => item,
            };
            let part = str_of(&item)?;
            size += part.len() + between.len();
            if size > 64 << 20 {
                return Err(Fault::limit("the result is too large"));
            }
            parts.push(part);
        }
        Ok(Value::from(parts.join(&between)))
    }),
    ("list", &["value"], |py, args| items(py, args).map(list)),
    ("map", &["value", "*"], |py, args| map(py, args)),
    ("select", &["value", "*"], |py, args| {
        select(py, args, true, false)
    }),
    ("reject", &["value", "*"], |py, args| {
        select(py, args, false, false)
    }),
    ("selectattr", &["value", "*"], |py, args| {
        select(py, args, true, true)
    }),
    ("rejectattr", &["value", "*"], |py, args| {
        select(py, args, false, true)
    }),
    (
        "sort",
        &["value", "reverse", "case_sensitive", "attribute"],
        |py, args| {
            let sensitive = args.flag(2, false)?;
            let mut pairs = Vec::new();
            for item in items(py, args)? {
                let key = match args.get(3).filter(|name| !name.is_none()) {
                    Some(names) => sort_key(&item, names, sensitive)?,
                    None => folded(&item, sensitive),
                };
                pairs.push((key, item));
            }
            ops::sorted(pairs, args.flag(1, false)?).map(list)
        },
    ),
    ("sum", &["iterable", "attribute", "start"], |py, args| {
        let mut total = args.get(2).cloned().unwrap_or_else(|| Value::from(0));
        for item in items(py, args)? {
            let item = match args.get(1).filter(|name| !name.is_none()) {
                Some(name) => path(&item, name)?,
                None => item,
            };
            total = ops::arithmetic("+", &total, &item)?;
        }
        Ok(total)
    }),
    ("random", &["seq"], |py, args| {
        let all = items(py, args)?;
        let index = super::digests::random_below(all.len())?;
        let chosen = all.get(index).cloned();
        Ok(chosen.unwrap_or_else(|| undefined("No random item, sequence was empty.")))
    }),
    // Salt's set theory; they take the place of Jinja2's filters of these names.
    ("unique", &["values"], |_, args| unique(args.need(0)?)),
    ("min", &["obj"], |_, args| extreme(args, "min", true)),
    ("max", &["obj"], |_, args| extreme(args, "max", false)),
    ("avg", &["lst"], |_, args| {
        let value = args.need(0)?;
        let mut total = Value::from(0);
        let all = match Kind::of(value) {
            Kind::List(_) | Kind::Dict(_) | Kind::Set(_) => ops::items(value)?,
            _ => {
                let number = match Kind::of(value) {
                    Kind::Str(text) => text.trim().parse().ok(),
                    _ => ops::as_float(value),
                };
                return number
                    .map(Value::from)
                    .ok_or_else(|| Fault::other("could not convert the value to float"));
            }
        };
        for item in &all {
            total = ops::arithmetic("+", &total, item)?;
        }
        ops::arithmetic("/", &total, &Value::from(all.len()))
    }),
    ("union", &["lst1", "lst2"], |_, args| {
        let (first, second) = (args.need(0)?, args.need(1)?);
        if hashable(first) && hashable(second) {
            return set(ops::items(first)?.into_iter().chain(ops::items(second)?));
        }
        unique(&ops::arithmetic("+", first, second)?)
    }),
    ("intersect", &["lst1", "lst2"], |_, args| choose(args, true)),
    ("difference", &["lst1", "lst2"], |_, args| {
        choose(args, false)
    }),
    ("symmetric_difference", &["lst1", "lst2"], |_, args| {
        let (first, second) = (args.need(0)?, args.need(1)?);
        let (mine, other) = (ops::items(first)?, ops::items(second)?);
        let mut kept = Vec::new();
        for item in mine.iter().chain(&other) {
            let both = within(&mine, item)? && within(&other, item)?;
            if !both && !within(&kept, item)? {
                kept.push(item.clone());
            }
        }
        if hashable(first) && hashable(second) {
            set(kept)
        } else {
            Ok(list(kept))
        }
    }),
    ("zip", &["value", "*"], |py, args| {
        let rows = columns(py, args)?;
        let shortest = rows.iter().map(Vec::len).min().unwrap_or(0);
        Ok(list(zipped(&rows, shortest, &none())))
    }),
    ("zip_longest", &["value", "*"], |py, args| {
        let rows = columns(py, args)?;
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        let fill = args.named.iter().find(|(name, _)| name == "fillvalue");
        Ok(list(zipped(
            &rows,
            longest,
            &fill.map_or_else(none, |(_, value)| value.clone()),
        )))
    }),
    ("compress", &["data", "selectors"], |py, args| {
        let chosen = ops::items(args.need(1)?)?;
        let pairs = items(py, args)?.into_iter().zip(chosen);
        Ok(list(
            pairs
                .filter(|(_, keep)| keep.is_true())
                .map(|(item, _)| item)
                .collect(),
        ))
    }),
    ("combinations", &["iterable", "r"], |py, args| {
        args.need(1)?;
        arrangements(py, args, |chosen, next| {
            chosen.last().is_none_or(|last| next > *last)
        })
    }),
    (
        "combinations_with_replacement",
        &["iterable", "r"],
        |py, args| {
            args.need(1)?;
            arrangements(py, args, |chosen, next| {
                chosen.last().is_none_or(|last| next >= *last)
            })
        },
    ),
    ("permutations", &["iterable", "r"], |py, args| {
        arrangements(py, args, |chosen, next| !chosen.contains(&next))
    }),
    ("product", &["value", "*"], |py, args| {
        let mut rows = columns(py, args)?;
        if let Some((_, times)) = args.named.iter().find(|(name, _)| name == "repeat") {
            let once = rows.clone();
            for _ in 1..times.as_usize().unwrap_or(1).min(20) {
                rows.extend(once.clone());
            }
        }
        let mut products: Vec<Vec<Value>> = vec![Vec::new()];
        for row in rows {
            let mut longer = Vec::new();
            for product in &products {
                py.run.round(row.len())?;
                for item in &row {
                    let mut product = product.clone();
                    product.push(item.clone());
                    longer.push(product);
                }
                if longer.len() > MAX_ITEMS {
                    return Err(Fault::limit("the result is too large"));
                }
            }
            products = longer;
        }
        Ok(list(products.into_iter().map(tuple).collect()))
    }),
];

fn items(py: &Py<'_, '_, '_>, args: &Bound) -> Outcome<Vec<Value>> {
    let value = args.need(0)?;
    if is_undefined(value) && !py.run.strict() {
        return Ok(Vec::new());
    }
    let items = ops::items(value)?;
    py.run.round(items.len())?;
    Ok(items)
}

/// The items of what Jinja2 goes through only if it is true: nothing of `None` or 0.
fn items_if_true(py: &Py<'_, '_, '_>, args: &Bound) -> Outcome<Vec<Value>> {
    let value = args.need(0)?;
    if !is_undefined(value) && !ops::truth(value)? {
        return Ok(Vec::new());
    }
    items(py, args)
}

/// Text in lower case, unless case counts.
fn folded(value: &Value, sensitive: bool) -> Value {
    match Kind::of(value) {
        Kind::Str(text) if !sensitive => Value::from(text.to_lowercase()),
        _ => value.clone(),
    }
}

/// An attribute by a path such as `a.b.0`.
fn path(item: &Value, name: &Value) -> Outcome<Value> {
    if name.as_str().is_none() {
        return ops::item(item, name);
    }
    let mut value = item.clone();
    for part in str_of(name)?.split('.') {
        let key = part
            .parse::<i64>()
            .map_or_else(|_| Value::from(part), Value::from);
        value = ops::item(&value, &key)?;
    }
    Ok(value)
}

fn sort_key(item: &Value, names: &Value, sensitive: bool) -> Outcome<Value> {
    let Some(text) = names.as_str() else {
        return Ok(folded(&path(item, names)?, sensitive));
    };
    let mut keys = Vec::new();
    for name in text.split(',') {
        // What is undefined is an error only where it is compared.
        keys.push(folded(&path(item, &Value::from(name))?, sensitive));
    }
    Ok(tuple(keys))
}

fn group_by(py: &mut Py<'_, '_, '_>, args: &Bound) -> Outcome<Value> {
    let sensitive = args.flag(3, false)?;
    let mut pairs = Vec::new();
    for item in items(py, args)? {
        let mut key = path(&item, args.need(1)?)?;
        if let Kind::Undefined(undefined) = Kind::of(&key) {
            key = args
                .get(2)
                .cloned()
                .ok_or_else(|| undefined_fault(undefined))?;
        }
        pairs.push((folded(&key, sensitive), tuple(vec![key, item])));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for pair in ops::sorted(pairs, false)? {
        let pair = ops::items(&pair)?;
        let [key, item] = pair.as_slice() else {
            continue;
        };
        let fold = folded(key, sensitive);
        match groups.last_mut() {
            Some((last, _, members)) if ops::equal(last, &fold)? => members.push(item.clone()),
            _ => groups.push((fold, key.clone(), vec![item.clone()])),
        }
    }
    let groups = groups
        .into_iter()
        .map(|(_, key, members)| tuple(vec![key, list(members)]));
    Ok(list(groups.collect()))
}

fn map(py: &mut Py<'_, '_, '_>, args: &Bound) -> Outcome<Value> {
    let all = items_if_true(py, args)?;
    let attribute = args.named.iter().find(|(name, _)| name == "attribute");
    let mut out = Vec::with_capacity(all.len());
    if all.is_empty() {
        return Ok(list(out));
    }
    if let (true, Some((_, attribute))) = (args.rest.is_empty(), attribute) {
        let default = args.named.iter().find(|(name, _)| name == "default");
        for item in &all {
            let value = path(item, attribute)?;
            out.push(match default {
                Some((_, default)) if is_undefined(&value) => default.clone(),
                _ => value,
            });
        }
        return Ok(list(out));
    }
    let Some((name, rest)) = args.rest.split_first() else {
        return Err(Fault::other("map requires a filter argument"));
    };
    let name = str_of(name)?;
    for item in all {
        let mut positional = vec![item];
        positional.extend_from_slice(rest);
        let call = Args {
            positional,
            named: args.named.clone(),
            caller: None,
        };
        out.push(super::apply(py, &name, call)?);
    }
    Ok(list(out))
}

fn select(
    py: &mut Py<'_, '_, '_>,
    args: &Bound,
    wanted: bool,
    by_attribute: bool,
) -> Outcome<Value> {
    let all = items_if_true(py, args)?;
    if all.is_empty() {
        return Ok(list(all));
    }
    let mut rest = args.rest.as_slice();
    let attribute = if by_attribute {
        let (first, after) = rest
            .split_first()
            .ok_or_else(|| Fault::other("Missing parameter for attribute name"))?;
        rest = after;
        Some(first.clone())
    } else {
        None
    };
    let mut out = Vec::new();
    for item in all {
        let value = match &attribute {
            Some(name) => path(&item, name)?,
            None => item.clone(),
        };
        let passed = match rest.split_first() {
            Some((name, more)) => {
                let name = str_of(name)?;
                let mut positional = vec![value];
                positional.extend_from_slice(more);
                let named = args.named.clone();
                is_tests::apply(
                    py,
                    &name,
                    Args {
                        positional,
                        named,
                        caller: None,
                    },
                )?
            }
            None => ops::truth(&value)?,
        };
        if passed == wanted {
            out.push(item);
        }
    }
    Ok(list(out))
}

/// Whether Python can hash the value, as far as Salt's set filters ask.
fn hashable(value: &Value) -> bool {
    !matches!(
        Kind::of(value),
        Kind::List(_) | Kind::Dict(_) | Kind::Set(_)
    )
}

fn within(items: &[Value], wanted: &Value) -> Outcome<bool> {
    for item in items {
        if ops::equal(item, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unique(values: &Value) -> Outcome<Value> {
    let items = ops::items(values)?;
    if hashable(values) {
        return set(items);
    }
    let mut kept: Vec<Value> = Vec::new();
    let mut keys: Entries = Entries::new();
    for item in items {
        match Key::of(&item) {
            Ok(key) => {
                if keys.insert(key, (none(), none())).is_none() {
                    kept.push(item);
                }
            }
            Err(_) if !within(&kept, &item)? => kept.push(item),
            Err(_) => {}
        }
    }
    Ok(list(kept))
}

fn choose(args: &Bound, inside: bool) -> Outcome<Value> {
    let (first, second) = (args.need(0)?, args.need(1)?);
    let other = ops::items(second)?;
    let mut kept = Vec::new();
    for item in ops::items(first)? {
        if within(&other, &item)? == inside && !within(&kept, &item)? {
            kept.push(item);
        }
    }
    if hashable(first) && hashable(second) {
        set(kept)
    } else {
        Ok(list(kept))
    }
}

fn extreme(args: &Bound, name: &str, least: bool) -> Outcome<Value> {
    let mut best: Option<Value> = None;
    for item in ops::items(args.need(0)?)? {
        let better = match &best {
            None => true,
            Some(best) if least => ops::compare("<", &item, best)?,
            Some(best) => ops::compare(">", &item, best)?,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Fault::other(format!("{name}() iterable argument is empty")))
}

fn columns(py: &Py<'_, '_, '_>, args: &Bound) -> Outcome<Vec<Vec<Value>>> {
    let mut columns = vec![items(py, args)?];
    for other in &args.rest {
        columns.push(ops::items(other)?);
    }
    Ok(columns)
}

fn zipped(columns: &[Vec<Value>], rows: usize, fill: &Value) -> Vec<Value> {
    let cell = |column: &Vec<Value>, row: usize| column.get(row).unwrap_or(fill).clone();
    (0..rows)
        .map(|row| tuple(columns.iter().map(|column| cell(column, row)).collect()))
        .collect()
}

/// All choices of `r` items, in the order of their indexes, that a rule allows.
fn arrangements(
    py: &Py<'_, '_, '_>,
    args: &Bound,
    allowed: fn(&[usize], usize) -> bool,
) -> Outcome<Value> {
    let all = items(py, args)?;
    let size = match args.get(1).filter(|size| !size.is_none()) {
        Some(size) => ops::as_int(size).ok_or_else(|| Fault::other("Expected int as r"))?,
        None => all.len() as i128,
    };
    let size = usize::try_from(size).map_err(|_| Fault::other("r must be non-negative"))?;
    let mut out = Vec::new();
    let mut chosen: Vec<usize> = Vec::new();
    let mut next = 0;
    loop {
        // Also of what leads to nothing, as choosing more than there are.
        py.run.round(1)?;
        if chosen.len() == size {
            out.push(tuple(
                chosen
                    .iter()
                    .filter_map(|at| all.get(*at).cloned())
                    .collect(),
            ));
            py.run.round(size.max(1))?;
            if out.len() > MAX_ITEMS {
                return Err(Fault::limit("the result is too large"));
            }
            next = all.len();
        }
        while next < all.len() && !allowed(&chosen, next) {
            next += 1;
        }
        if next < all.len() {
            chosen.push(next);
            next = 0;
        } else {
            match chosen.pop() {
                Some(last) => next = last + 1,
                None => return Ok(list(out)),
            }
        }
    }
}

/// A dict from pairs, for filters that make one.
pub(super) fn dict_from(pairs: impl IntoIterator<Item = (Value, Value)>) -> Outcome<Value> {
    let mut entries = Entries::new();
    for (key, value) in pairs {
        entries.insert(Key::of(&key)?, (key, value));
    }
    Ok(dict(entries))
}
