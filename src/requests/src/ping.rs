//! `ping`, clear: gives the load back. The smallest command, and the one to read first.

use saltern_wire::msgpack::MapView;

use crate::{Outcome, reply};

/// Largest load that is given back, in bytes. Any peer may send one, and stock's have one entry.
const MAX_LOAD_BYTES: usize = 1 << 10;

/// Answers with the load as it came (`ClearFuncs.ping` in `salt/master.py`).
pub(crate) fn handle(load: &MapView) -> Outcome {
    let packed = load.pack();
    Outcome::reply(match packed.len() {
        ..=MAX_LOAD_BYTES => packed,
        _ => reply::bad_load(),
    })
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::{Dialect, Limits, Value, encode};

    use super::*;

    fn answer(padding: usize) -> (Vec<u8>, Vec<u8>) {
        let load = Value::Map(vec![
            (Value::from("cmd"), Value::from("ping")),
            (Value::from("x"), Value::from("y".repeat(padding).as_str())),
        ]);
        let packed = encode(&load, Dialect::Raw);
        let map = MapView::parse(packed.clone().into(), &Limits::WIRE).expect("a map");
        (packed, handle(&map).reply.to_vec())
    }

    #[test]
    fn load_is_given_back_up_to_its_bound() {
        let (load, reply) = answer(1000);
        assert_eq!(reply, load);
        let (load, reply) = answer(1 << 20);
        assert!(load.len() > MAX_LOAD_BYTES);
        assert_eq!(reply, reply::bad_load());
    }
}
