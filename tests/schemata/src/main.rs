//! Mutant schemata: puts all mutants of a list into the sources at once, each behind a question at run time,
//! so that one build has them all (`tests/mutants_at_once.py`).
//!
//!     schemata TREE <mutants.json >placed.json
//!
//! Reads mutants as `cargo mutants --list --json` prints them, with a number each (`id`), rewrites the files
//! in TREE, and prints the numbers that it placed. Lines from `/*B7*/` to `/*M7*/` belong to mutant 7 alone.
//! What it does not place is left to cargo-mutants: constants, fields of structs, guards and chains with `let`,
//! values of functions that return `impl Trait`.

use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::Span;
use serde_json::{Value, json};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

struct Mutant {
    id: u64,
    genre: String,
    replacement: String,
}

type At = (usize, usize);

/// A change of the text at a place.
enum Edit {
    /// Alternatives to an expression: number of the mutant, and text.
    Choose(Vec<(u64, String)>),
    /// Text put before the place.
    Insert(String),
}

struct Finder<'a> {
    source: &'a str,
    mutants: &'a HashMap<At, Vec<Mutant>>,
    edits: Vec<(Range<usize>, Edit)>,
    placed: Vec<u64>,
    is_const: bool,
    /// Choices of the outermost binary expression without `let` that is being visited.
    root: Option<(Range<usize>, Vec<(u64, String)>)>,
}

fn at(span: Span) -> At {
    let start = span.start();
    (start.line, start.column + 1)
}

fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) if matches!(binary.op, syn::BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

/// Whether a function promises no type but what it can do: all its ends have to be of one type.
fn returns_impl(sig: &syn::Signature) -> bool {
    struct Found(bool);
    impl<'ast> Visit<'ast> for Found {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut found = Found(false);
    found.visit_return_type(&sig.output);
    found.0
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let path = attr.path();
        if path.is_ident("cfg") {
            let mut found = false;
            let _ = attr.parse_nested_meta(|meta| {
                found |= meta.path.is_ident("test");
                Ok(())
            });
            return found;
        }
        path.segments
            .last()
            .is_some_and(|last| last.ident == "test")
    })
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.source[span.byte_range()]
    }

    fn of(&self, at: At, genre: &str) -> Vec<(u64, String)> {
        let there = self.mutants.get(&at).into_iter().flatten();
        let there = there.filter(|mutant| mutant.genre == genre);
        there
            .map(|mutant| (mutant.id, mutant.replacement.clone()))
            .collect()
    }

    fn choose(&mut self, place: Range<usize>, choices: Vec<(u64, String)>) {
        if choices.is_empty() || self.is_const {
            return;
        }
        self.placed.extend(choices.iter().map(|(id, _)| *id));
        self.edits.push((place, Edit::Choose(choices)));
    }

    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) -> bool {
        let was = self.is_const;
        self.is_const = sig.constness.is_some();
        let is_left = self.is_const || returns_impl(sig);
        if let (Some(first), false) = (block.stmts.first(), is_left) {
            let choices = self.of(at(first.span()), "FnValue");
            if !choices.is_empty() {
                let ids = choices.iter().map(|(id, _)| format!("{id}_u32"));
                let ids: Vec<_> = ids.collect();
                let mut text = format!(
                    "match crate::__schemata::active(&[{}]) {{\n",
                    ids.join(", ")
                );
                for (id, replacement) in &choices {
                    text +=
                        &format!("{id}_u32 => return {{ {replacement} }}, /*B{id}*/ /*M{id}*/\n");
                }
                text += "_ => {}\n}\n";
                self.placed.extend(choices.iter().map(|(id, _)| *id));
                let start = first.span().byte_range().start;
                self.edits.push((start..start, Edit::Insert(text)));
            }
        }
        was
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_test(&item.attrs) {
            return;
        }
        let was = self.function(&item.sig, &item.block);
        visit::visit_block(self, &item.block);
        self.is_const = was;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let was = self.function(&item.sig, &item.block);
        visit::visit_block(self, &item.block);
        self.is_const = was;
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            let was = self.function(&item.sig, block);
            visit::visit_block(self, block);
            self.is_const = was;
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let is_chain = has_let(&syn::Expr::Binary(expr.clone()));
        let is_root = self.root.is_none() && !is_chain;
        if is_root {
            self.root = Some((expr.span().byte_range(), Vec::new()));
        }
        if let (Some((whole, choices)), false) = (&self.root, is_chain) {
            let (whole, mut choices) = (whole.clone(), choices.clone());
            let op = expr.op.span().byte_range();
            for (id, replacement) in self.of(at(expr.op.span()), "BinaryOperator") {
                let text = format!(
                    "{}{replacement}{}",
                    &self.source[whole.start..op.start],
                    &self.source[op.end..whole.end]
                );
                // Comparisons cannot be chained.
                if syn::parse_str::<syn::Expr>(&text).is_ok() {
                    choices.push((id, text));
                }
            }
            self.root = Some((whole, choices));
        }
        for part in [&*expr.left, &*expr.right] {
            if matches!(part, syn::Expr::Binary(_)) {
                self.visit_expr(part);
            } else {
                let root = self.root.take();
                self.visit_expr(part);
                self.root = root;
            }
        }
        if is_root && let Some((whole, choices)) = self.root.take() {
            self.choose(whole, choices);
        }
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        visit::visit_expr_unary(self, expr);
        let inner = self.text(expr.expr.span());
        let choices = self.of(at(expr.op.span()), "UnaryOperator").into_iter();
        let choices = choices.map(|(id, _)| (id, inner.to_owned())).collect();
        self.choose(expr.span().byte_range(), choices);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        visit::visit_expr_match(self, expr);
        for arm in &expr.arms {
            if self.is_const {
                continue;
            }
            if let Some((_, guard)) = &arm.guard {
                if !has_let(guard) {
                    let choices = self.of(at(guard.span()), "MatchArmGuard");
                    self.choose(guard.span().byte_range(), choices);
                }
                continue;
            }
            for (id, _) in self.of(at(arm.span()), "MatchArm") {
                let end = arm.pat.span().byte_range().end;
                let text = format!(
                    " if crate::__schemata::active(&[{id}_u32]) == 0 /*B{id}*/ /*M{id}*/\n"
                );
                self.edits.push((end..end, Edit::Insert(text)));
                self.placed.push(id);
            }
        }
    }
}

/// The text of a range with the edits within it, outermost first.
fn render(source: &str, range: Range<usize>, edits: &[(Range<usize>, Edit)], out: &mut String) {
    let mut position = range.start;
    let mut index = 0;
    while index < edits.len() {
        let (place, edit) = &edits[index];
        out.push_str(&source[position..place.start]);
        match edit {
            Edit::Insert(text) => {
                out.push_str(text);
                position = place.start;
                index += 1;
            }
            Edit::Choose(choices) => {
                let inner = edits[index + 1..]
                    .iter()
                    .take_while(|(inner, _)| inner.start < place.end)
                    .count();
                let ids: Vec<_> = choices.iter().map(|(id, _)| format!("{id}_u32")).collect();
                out.push_str(&format!(
                    "(match crate::__schemata::active(&[{}]) {{\n",
                    ids.join(", ")
                ));
                for (id, text) in choices {
                    out.push_str(&format!("{id}_u32 => {{ /*B{id}*/\n{text}\n}} /*M{id}*/\n"));
                }
                out.push_str("_ => ");
                render(
                    source,
                    place.clone(),
                    &edits[index + 1..index + 1 + inner],
                    out,
                );
                out.push_str("\n})");
                position = place.end;
                index += 1 + inner;
            }
        }
    }
    out.push_str(&source[position..range.end]);
}

fn main() {
    let tree = std::env::args().nth(1).expect("say TREE");
    let list: Vec<Value> = serde_json::from_reader(std::io::stdin()).expect("a list of mutants");
    let mut files: HashMap<String, HashMap<At, Vec<Mutant>>> = HashMap::new();
    for one in &list {
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let start = &one["span"]["start"];
        let place = (number(&start["line"]), number(&start["column"]));
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        let mutant = Mutant {
            id: one["id"].as_u64().unwrap(),
            genre: text("genre"),
            replacement: text("replacement"),
        };
        let file = files.entry(text("file")).or_default();
        file.entry(place).or_default().push(mutant);
    }
    let mut placed = Vec::new();
    for (name, mutants) in &files {
        let path = format!("{tree}/{name}");
        let source = std::fs::read_to_string(&path).expect("a source");
        let parsed = syn::parse_file(&source).expect("Rust");
        let mut finder = Finder {
            source: &source,
            mutants,
            edits: Vec::new(),
            placed: Vec::new(),
            is_const: false,
            root: None,
        };
        finder.visit_file(&parsed);
        let Finder {
            mut edits,
            placed: here,
            ..
        } = finder;
        // The outer one of two that begin at the same place first; insertions before them.
        edits.sort_by_key(|(place, edit)| {
            let order = matches!(edit, Edit::Choose(_));
            (place.start, order, std::cmp::Reverse(place.end))
        });
        let mut out = String::new();
        render(&source, 0..source.len(), &edits, &mut out);
        std::fs::write(&path, out).expect("written");
        placed.extend(here);
    }
    placed.sort_unstable();
    println!("{}", json!(placed));
}
