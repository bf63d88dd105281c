//! Cache of compiled templates, because the same files are rendered for minion after minion.
//!
//! An entry depends on a text, a name and a syntax, and on nothing else: no value of a minion is in
//! it. A template that it imports is kept beside it under a name with a digest of its text,
//! so a file that changes is compiled anew. At most [`MAX_BYTES`] are kept, as estimated: there are
//! two generations, and when the young one is half of that, the old one is dropped and the young
//! one becomes old.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock};

use minijinja::{Environment, Error};
use parking_lot::Mutex;

use super::options::Syntax;
use super::{MAIN, PART, engine, translate};
use crate::render::error::{ErrorClass, RenderError};

/// The most bytes of all that is kept.
const MAX_BYTES: usize = 64 << 20;
/// The most of one template with all that it imports; beyond, nothing more is kept beside it.
const MAX_TEMPLATE_BYTES: usize = 8 << 20;
/// About how many bytes of memory one byte of the translated text costs once it is compiled.
const COST: usize = 12;

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);
/// Keyed anew in each process, so that nobody can make two texts look the same.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A compiled template.
pub(super) struct Compiled {
    /// The name that the engine knows it by.
    pub(super) main: String,
    source: Box<str>,
    syntax: Syntax,
    /// The engine with it and what it imported before, and the bytes of these.
    engine: Mutex<(Environment<'static>, usize)>,
}

#[derive(Default)]
struct Cache {
    young: HashMap<u64, Arc<Compiled>>,
    old: HashMap<u64, Arc<Compiled>>,
    /// The bytes of the young ones.
    bytes: usize,
}

/// Hash of the text of an imported template.
pub(super) fn mark(path: &str, text: &str) -> u64 {
    HASHER.hash_one((path, text))
}

/// The compiled form of a template; `name` is its path.
///
/// # Errors
/// If its syntax is wrong.
pub(super) fn of(source: &str, name: &str, syntax: &Syntax) -> Result<Arc<Compiled>, RenderError> {
    let key = HASHER.hash_one((source, name, syntax));
    let main = format!("{name}{PART}{MAIN}");
    let is_meant =
        |it: &Arc<Compiled>| *it.source == *source && it.main == main && it.syntax == *syntax;
    if let Some(found) = CACHE.lock().find(key).filter(is_meant) {
        return Ok(found);
    }
    let translated = translate::translate(source, syntax, MAIN).map_err(|fault| {
        RenderError::new(ErrorClass::Syntax, name, fault.message).at(fault.line)
    })?;
    let bytes = source.len() + translated.len().saturating_mul(COST);
    let mut engine = engine::empty().map_err(|error| engine::explain(error, name))?;
    engine
        .add_template_owned(main.clone(), translated)
        .map_err(|error: Error| engine::explain(error, name))?;
    let compiled = Arc::new(Compiled {
        main,
        source: Box::from(source),
        syntax: syntax.clone(),
        engine: Mutex::new((engine, bytes)),
    });
    CACHE.lock().keep(key, compiled.clone(), bytes);
    Ok(compiled)
}

impl Compiled {
    /// An engine with the template; what happens to it does not come back.
    pub(super) fn engine(&self) -> Environment<'static> {
        self.engine.lock().0.clone()
    }

    /// Keeps what the engine of a rendering compiled beside the template.
    pub(super) fn learn(&self, engine: &Environment<'static>) {
        let sources = engine
            .templates()
            .map(|(_, template)| template.source().len());
        let bytes = sources.sum::<usize>().saturating_mul(COST);
        if bytes > MAX_TEMPLATE_BYTES {
            return;
        }
        let engine = engine::without_run(engine);
        let mut known = self.engine.lock();
        let more = bytes.saturating_sub(known.1);
        *known = (engine, bytes);
        drop(known);
        CACHE.lock().grow(more);
    }
}

impl Cache {
    /// Moves a used template to the young end.
    fn find(&mut self, key: u64) -> Option<Arc<Compiled>> {
        if let Some(found) = self.young.get(&key) {
            return Some(found.clone());
        }
        let found = self.old.remove(&key)?;
        let bytes = found.engine.lock().1;
        self.keep(key, found.clone(), bytes);
        Some(found)
    }

    fn keep(&mut self, key: u64, compiled: Arc<Compiled>, bytes: usize) {
        if bytes > MAX_BYTES / 2 {
            return;
        }
        self.grow(bytes);
        self.young.insert(key, compiled);
    }

    fn grow(&mut self, bytes: usize) {
        if self.bytes + bytes > MAX_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Cache, MAX_BYTES, Syntax, of};

    #[test]
    fn template_is_compiled_once_for_its_text_name_and_syntax() {
        let plain = Syntax::default();
        let trimmed = Syntax {
            trim_blocks: true,
            ..Syntax::default()
        };
        let get = |source, name, syntax| of(source, name, syntax).expect("it is a template");
        let first = get("{{ a }}", "compiled.sls", &plain);
        assert!(Arc::ptr_eq(&first, &get("{{ a }}", "compiled.sls", &plain)));
        for (source, name, syntax) in [
            ("{{ b }}", "compiled.sls", &plain),
            ("{{ a }}", "other.sls", &plain),
            ("{{ a }}", "compiled.sls", &trimmed),
        ] {
            assert!(
                !Arc::ptr_eq(&first, &get(source, name, syntax)),
                "{source} {name}"
            );
        }
        assert!(of("{{", "compiled.sls", &plain).is_err());
    }

    #[test]
    fn template_cache_is_bounded_and_keeps_used_entries() {
        let mut cache = Cache::default();
        let one = of("x", "bounded.sls", &Syntax::default()).expect("it is a template");
        let large = MAX_BYTES / 8;
        for key in 0..100 {
            cache.keep(key, one.clone(), large);
            assert!(cache.find(0).is_some(), "the first is used all the time");
            assert!(cache.young.len() + cache.old.len() <= 10);
        }
        assert!(cache.find(1).is_none());
        cache.keep(1000, one, MAX_BYTES);
        assert!(cache.find(1000).is_none(), "it is too large");
    }
}
