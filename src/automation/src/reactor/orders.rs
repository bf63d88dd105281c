//! Management of the reactor by events: those whose tag ends in `salt/reactors/manage/…`, by which
//! stock's `salt-run reactor.*` asks a running master (`Reactor.run` in `salt/utils/reactor.py`).
//!
//! They count only with the key of the master's user, and are answered by events.

use std::sync::atomic::{AtomicBool, Ordering};

use saltern_model::{Event, Tag};
use saltern_requests::{Services, master_event};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::Rules;

/// The part that tags of orders, and of their answers, contain.
const MANAGE: &str = "salt/reactors/manage";

/// Management request to the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// List the rules.
    List,
    /// Add a rule.
    Add,
    /// Remove a rule.
    Delete,
    /// Report whether events lead to reactions.
    IsLeader,
    /// Set whether events lead to reactions.
    SetLeader,
}

/// The order of an event; `None` for any other event. `Some(None)` for a tag that contains the
/// prefix but is no order, such as an answer: it has no effect.
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

/// Carries out an order on the rules and on whether events lead to reactions at all. Returns the
/// event that answers it; `None` for an order that proves no sender.
pub fn answer(
    order: Order,
    data: &Value,
    rules: &mut Rules,
    is_leader: &AtomicBool,
    services: &Services,
) -> Option<Event> {
    let key = data.get("key").and_then(Value::as_str);
    if !key.is_some_and(|key| {
        services
            .users
            .rules()
            .users
            .is_of(&services.config.user, key)
    }) {
        tracing::error!(
            ?order,
            "a command to the reactor without the master's key is ignored"
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
            // Only an order for this master counts: its id stands there.
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
    let has_rules = !matches!(order, Order::IsLeader | Order::SetLeader);
    let data = OrderAnswer {
        reactors: has_rules.then(|| rules.list()),
        result,
    };
    let tag = Tag::parse(&format!("{MANAGE}/{what}")).ok()?;
    Some(master_event(services, tag, &data))
}

/// Data of the event that answers an order.
#[derive(Serialize)]
struct OrderAnswer {
    /// The rules, as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    reactors: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_recognised_by_end_of_tag() {
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
