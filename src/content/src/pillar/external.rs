//! External pillars in a compilation: their input, and the compilation of other directories for
//! `git` (`ext_pillar` in `salt/pillar/__init__.py`). The sources themselves are
//! [`crate::ext_pillar`].

use std::path::PathBuf;
use std::sync::Arc;

use saltern_wire::msgpack::Value;

use super::compile::{Compilation, Halt, Roots, empty};
use super::{Limits, PillarRequest};
use crate::ext_pillar::ExtInput;

impl Compilation<'_> {
    /// Adds the override and what external pillars give, those that the minion asks for at last.
    pub(super) fn external(&self, pillar: Value, errors: &mut Vec<String>) -> Value {
        let pillar = self.with_override(pillar);
        let on_demand = self.on_demand();
        if self.pillars.ext.is_empty() && on_demand.is_empty() {
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
        let (pillar, problems) = self.pillars.ext.apply(pillar, &on_demand, &input, &merge);
        errors.extend(problems);
        pillar
    }

    /// The external pillars that the minion asks for, if it may have all of them
    /// (`__valid_on_demand_ext_pillar`); otherwise that is logged, and not answered.
    fn on_demand(&self) -> Vec<(String, Value)> {
        let Some(wanted) = self.request.ext.as_ref().filter(|ext| ext.is_truthy()) else {
            return Vec::new();
        };
        let minion = &self.request.minion;
        let named = |(key, value): &(Value, Value)| Some((key.as_str()?.to_owned(), value.clone()));
        let Some(entries) = wanted.as_map() else {
            tracing::error!(%minion, "on-demand ext_pillar is no dictionary");
            return Vec::new();
        };
        let allowed = &self.pillars.options.on_demand;
        let asked: Vec<_> = entries.iter().filter_map(named).collect();
        if asked.len() == entries.len() && asked.iter().all(|(name, _)| allowed.contains(name)) {
            return asked;
        }
        let names: Vec<&String> = asked.iter().map(|(name, _)| name).collect();
        tracing::error!(%minion, ?names, "on-demand ext_pillar not allowed");
        Vec::new()
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
