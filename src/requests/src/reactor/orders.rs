//! Orders to the reactor itself: events whose tag ends in `salt/reactors/manage/…`, by which
//! stock's `salt-run reactor.*` asks a running master (`Reactor.run` in `salt/utils/reactor.py`).
//!
//! They count only with the key of the master's user, and are answered by events.

use std::sync::atomic::{AtomicBool, Ordering};

use saltern_model::{Event, Tag};
use saltern_wire::msgpack::Value;

use super::Rules;
use crate::Services;
use crate::event_data::{self, fields};

/// What tags of orders, and of their answers, have in them.
const MANAGE: &str = "salt/reactors/manage";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Which rules there are.
    List,
    /// A further rule.
    Add,
    /// A rule less.
    Delete,
    /// Whether events lead to reactions.
    IsLeader,
    /// Whether they shall.
    SetLeader,
}

/// The order of an event; nothing for any other event. `None` inside for what only looks like one,
/// such as an answer to one: that leads to nothing at all.
pub fn order_of(tag: &str) -> Option<Option<Order>> {
    let (before, what) = tag.rsplit_once('/').unwrap_or(("", tag));
    if before.ends_with(MANAGE) {
        return Some(match what {
            "list" => Some(Order::List),
            "add" => Some(Order::Add),
            "delete" => Some(Order::Delete),
            "is_leader" => Some(Order::IsLeader),
            "set_leader" => Some(Order::SetLeader),
            _ => None,
        });
    }
    tag.contains(MANAGE).then_some(None)
}

/// Obeys an order, on the rules and on whether events lead to reactions at all; gives the event that answers it, nothing for one that proves nobody.
pub fn answer(
    order: Order,
    data: &Value,
    rules: &mut Rules,
    is_leader: &AtomicBool,
    services: &Services,
) -> Option<Event> {
    let key = data.get("key").and_then(Value::as_str);
    if !key.is_some_and(|key| services.rules().users.is_of(&services.config.user, key)) {
        tracing::error!(
            ?order,
            "an order to the reactor without the master's key is not obeyed"
        );
        return None;
    }
    let text = |name| data.get(name).and_then(Value::as_str).unwrap_or_default();
    let (what, result) = match order {
        Order::List => ("list-results", None),
        Order::Add => {
            let references = data.get("reactors").unwrap_or(&Value::Nil);
            ("add-complete", Some(rules.add(text("event"), references)))
        }
        Order::Delete => ("delete-complete", Some(rules.delete(text("event")))),
        Order::IsLeader | Order::SetLeader => {
            // Only what is said of this master counts: its name stands there.
            if order == Order::SetLeader && text("id") == services.config.id {
                let value = data.get("value").is_some_and(Value::is_truthy);
                is_leader.store(value, Ordering::Relaxed);
            }
            (
                "leader/value",
                Some(is_leader.load(Ordering::Relaxed).into()),
            )
        }
    };
    let mut data = fields([]);
    if !matches!(order, Order::IsLeader | Order::SetLeader) {
        data.push(("reactors".into(), rules.list()));
    }
    data.extend(result.map(|result| ("result".into(), result)));
    let tag = Tag::parse(&format!("{MANAGE}/{what}")).ok()?;
    Some(event_data::event(services, tag, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_known_by_the_end_of_their_tags() {
        let table = [
            ("salt/reactors/manage/list", Some(Some(Order::List))),
            (
                "salt/run/1/salt/reactors/manage/add",
                Some(Some(Order::Add)),
            ),
            ("x/salt/reactors/manage/delete", Some(Some(Order::Delete))),
            (
                "salt/reactors/manage/is_leader",
                Some(Some(Order::IsLeader)),
            ),
            (
                "salt/reactors/manage/set_leader",
                Some(Some(Order::SetLeader)),
            ),
            ("salt/reactors/manage/list-results", Some(None)),
            ("salt/reactors/manage/leader/value", Some(None)),
            ("salt/reactors", None),
            ("list", None),
        ];
        for (tag, expected) in table {
            assert_eq!(order_of(tag), expected, "{tag}");
        }
    }
}
