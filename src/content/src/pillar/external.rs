//! External pillars in a compilation: what they are given, and the compilation of other directories
//! for `git` (`ext_pillar` in `salt/pillar/__init__.py`). The sources themselves are
//! [`crate::ext_pillar`].

use std::path::PathBuf;
use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::compile::{Compilation, Halt, Roots, empty};
use super::{Limits, PillarRequest};
use crate::ext_pillar::ExtInput;

impl Compilation<'_> {
    /// Adds the override and what external pillars give.
    pub(super) fn external(&self, pillar: Value, errors: &mut Vec<String>) -> Value {
        let pillar = self.with_override(pillar);
        self.refuse_on_demand(errors);
        if self.pillars.ext.is_empty() {
            return pillar;
        }
        let mut context = self.context.clone();
        context.limits.time = context.limits.time.min(self.time_left());
        let input = ExtInput {
            minion: &self.request.minion,
            grains: &self.request.grains,
            opts: &self.opts,
            saltenv: self.request.saltenv.as_deref(),
            pillarenv: self.pillarenv.as_deref(),
            context: &context,
            renderers: &self.pillars.options.renderers,
            in_nodegroup: &|name| {
                let group = Value::from(name);
                self.single().matches("nodegroup", &group).unwrap_or(false)
            },
            compile_roots: &|roots| self.compile_roots(roots),
        };
        let merge = |base, update| self.merged(base, update);
        let (pillar, problems) = self.pillars.ext.apply(pillar, &input, &merge);
        errors.extend(problems);
        pillar
    }

    /// External pillars that the minion asks for: stock runs those that `on_demand_ext_pillar`
    /// lists and refuses the others in the log. Here there are none that could run.
    fn refuse_on_demand(&self, errors: &mut Vec<String>) {
        let Some(wanted) = self.request.ext.as_ref().filter(|ext| ext.is_truthy()) else {
            return;
        };
        let names: Option<Vec<&str>> = wanted
            .as_map()
            .map(|entries| entries.iter().filter_map(|(key, _)| key.as_str()).collect());
        let minion = &self.request.minion;
        let allowed = &self.pillars.options.on_demand;
        match names {
            Some(names) if names.iter().all(|name| allowed.iter().any(|n| n == name)) => {
                errors.extend(names.iter().map(|name| {
                    format!("Failed to load ext_pillar {name}: it is not available on demand")
                }));
            }
            Some(names) => tracing::error!(%minion, ?names, "on-demand ext_pillar not allowed"),
            None => tracing::error!(%minion, "on-demand ext_pillar is no dictionary"),
        }
    }

    /// Compiles other directories in the place of `pillar_roots`, without external pillars and
    /// without the override (`ext_pillar` in `salt/pillar/git_pillar.py`).
    fn compile_roots(&self, roots: &[(String, Vec<PathBuf>)]) -> (Value, Vec<String>) {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let roots: Roots = roots
            .iter()
            .map(|(name, paths)| (name.clone(), paths.iter().map(text).collect()))
            .collect();
        let request = PillarRequest {
            saltenv: roots.first().map(|(name, _)| name.clone()),
            pillarenv: self.request.pillarenv.clone(),
            pillar_override: None,
            ext: None,
            ..self.request.clone()
        };
        let limits = Limits {
            time: self.time_left(),
            files: self.files_left,
            bytes: self.bytes_left,
        };
        let mut inner = Compilation::new(self.pillars, &request, &limits, Some(roots));
        inner.see(Arc::clone(&self.seen));
        let (mut pillar, mut errors, mut top_errors) = (empty(), Vec::new(), Vec::new());
        let halted = inner.compile(&mut pillar, &mut errors, &mut top_errors);
        errors.append(&mut top_errors);
        errors.extend(halted.err().map(|Halt(reason)| reason));
        (pillar, errors)
    }
}
