//! Grains of many minions at once, read from the index: what an inventory shows. No file is read for it
//! but those that have changed.

use std::sync::Arc;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::pool::{NONE, Values};
use crate::target::Targeting;

/// One path into grains, with the values that its first name has.
struct Column<'a> {
    /// The number of each minion's value, by slot.
    numbers: Arc<Vec<u32>>,
    rest: Vec<&'a str>,
}

impl Targeting {
    /// For each minion its grains at these paths, such as `os` or `ip4_interfaces:eth0:0`; nothing where
    /// there is none.
    pub fn grains_at(&self, minions: &[MinionId], paths: &[&str]) -> Vec<Vec<Option<Value>>> {
        let site = self.site.as_ref().filter(|_| !paths.is_empty());
        let Some((site, data)) = site.and_then(|site| Some((site, site.data.as_ref()?))) else {
            return vec![vec![None; paths.len()]; minions.len()];
        };
        site.read_ahead(data.as_ref());
        let (columns, values, slots) = {
            let mut index = site.index.lock();
            index.refresh(data.as_ref());
            let columns: Vec<Column<'_>> = paths
                .iter()
                .map(|path| {
                    let mut parts = path.split(':');
                    Column {
                        numbers: index.grain_column(parts.next().unwrap_or_default()),
                        rest: parts.collect(),
                    }
                })
                .collect();
            let slots: Vec<u32> = minions.iter().map(|id| index.slot(id)).collect();
            (columns, index.grain_values(), slots)
        };
        let row = |slot: &u32| {
            let columns = columns.iter();
            columns.map(|column| column.value(*slot, &values)).collect()
        };
        slots.iter().map(row).collect()
    }
}

impl Column<'_> {
    fn value(&self, slot: u32, values: &Values) -> Option<Value> {
        let number = self.numbers.get(slot as usize).copied().unwrap_or(NONE);
        let first = values.get(number)?;
        let found = self.rest.iter().try_fold(first, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
        found.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::index_tests::Data;
    use crate::matching::{Nodegroups, Site};
    use saltern_model::Compat;

    #[test]
    fn grains_are_given_by_minion_and_path() {
        let site = |data| Targeting::of(Site::new(Compat::V3008, Nodegroups::default(), data));
        let addresses = vec![Value::from("10.0.0.1"), Value::from("10.0.0.2")];
        let interfaces = Value::map([("eth0", Value::from(addresses))]);
        let grains = [
            ("os", Value::from("Debian")),
            ("ip4_interfaces", interfaces),
        ];
        let one = site(Some(Arc::new(Data::of_one("web1", Value::map(grains)))));
        let minions = ["db1", "web1"].map(|id| MinionId::parse(id).unwrap());
        let paths = [
            ("os", Some("Debian")),
            ("ip4_interfaces:eth0:1", Some("10.0.0.2")),
            ("ip4_interfaces:eth0:2", None),
            ("ip4_interfaces:eth0:x", None),
            ("ip4_interfaces:eth1", None),
            ("os:x", None),
            ("kernel", None),
        ];
        let (paths, expected): (Vec<&str>, Vec<Option<&str>>) = paths.into_iter().unzip();
        let expected: Vec<Option<Value>> = expected
            .into_iter()
            .map(|text| text.map(Value::from))
            .collect();
        let nothing = vec![None; paths.len()];
        let found = one.grains_at(&minions, &paths);
        assert_eq!(found, [nothing.clone(), expected]);
        assert_eq!(one.grains_at(&minions, &[]), [vec![], vec![]]);
        for without in [site(None), Targeting::default()] {
            let found = without.grains_at(&minions, &paths);
            assert_eq!(found, [nothing.clone(), nothing.clone()]);
        }
    }
}
