//! `serde` for the validated texts: written as they are, parsed when they are read.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::{Jid, MinionId};

macro_rules! validated_text {
    ($($name:ty),*) => {
        $(
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                    out.serialize_str(self.as_str())
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                    Self::parse(&String::deserialize(input)?).map_err(D::Error::custom)
                }
            }
        )*
    };
}

validated_text!(MinionId, Jid);
