//! Files of a crate import each other in no circle: each can be read after those that it needs.
//! Between a module and the modules in it a circle is fine: what siblings share may be in their parent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::{crates, sources};

/// A module's path below the crate's root; the root's is empty.
type Module = Vec<String>;

/// A crate's modules, each in a file of its own, with the names that they import.
#[derive(Default)]
struct Modules {
    imports: BTreeMap<Module, BTreeMap<String, Module>>,
    texts: BTreeMap<Module, String>,
}

impl Modules {
    /// From paths below `src` and the files' texts.
    fn new(files: impl IntoIterator<Item = (PathBuf, String)>) -> Self {
        let mut modules = Self::default();
        for (path, text) in files {
            let module = module_of(&path);
            let code: Vec<&str> =
                text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            let code = code.join("\n");
            let imports = imports(&code).into_iter();
            let imports = imports.map(|path| (path.last().cloned().unwrap_or_default(), path));
            // `use a::b as c` binds c.
            let imports = imports.map(|(name, path)| match name.split_once(" as ") {
                Some((name, alias)) => {
                    let parents = &path[..path.len() - 1];
                    (alias.to_owned(), [parents, &[name.to_owned()]].concat())
                }
                None => (name, path),
            });
            modules.imports.insert(module.clone(), imports.collect());
            modules.texts.insert(module, code);
        }
        modules
    }

    /// The module in whose file the item with this path stands, imports followed; `None` where it
    /// is of another crate. `fuel` ends what follows itself.
    fn resolve(&self, from: &Module, path: &[String], fuel: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first().filter(|_| fuel > 0)?;
        let child = |module: &Module, name: &String| {
            let child = [module.as_slice(), std::slice::from_ref(name)].concat();
            self.texts.contains_key(&child).then_some(child)
        };
        let mut module = match first.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                let imported = || self.imports[from].get(first).filter(|import| *import != path);
                let resolved = || self.resolve(from, imported()?, fuel - 1);
                child(from, first).or_else(resolved)?
            }
        };
        while let Some((name, after)) = rest.split_first() {
            rest = after;
            if name == "super" {
                module.pop();
            } else if let Some(inner) = child(&module, name) {
                module = inner;
            } else if let Some(import) = self.imports[&module].get(name) {
                module = self.resolve(&module, import, fuel - 1)?;
            } else {
                break;
            }
        }
        Some(module)
    }

    /// Modules that a module needs, but those around it; modules in it are among them.
    fn needed(&self, module: &Module) -> BTreeSet<Module> {
        let imported = self.imports[module].values().cloned();
        let paths = imported.chain(paths(&self.texts[module]));
        let found = paths.filter_map(|path| self.resolve(module, &path, 20));
        let inner = self
            .texts
            .keys()
            .filter(|text| text.len() == module.len() + 1 && text.starts_with(module));
        let all = found.chain(inner.cloned());
        all.filter(|item| !module.starts_with(item)).collect()
    }

    /// Each circle's modules, with those of the circle that they need.
    fn circles(&self) -> Vec<Vec<String>> {
        let needed: BTreeMap<&Module, BTreeSet<Module>> =
            self.texts.keys().map(|module| (module, self.needed(module))).collect();
        let reached = |from: &Module| {
            let mut seen = BTreeSet::new();
            let mut ahead = vec![from];
            while let Some(module) = ahead.pop() {
                ahead.extend(needed[module].iter().filter(|needed| seen.insert((*needed).clone())));
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            needed.keys().map(|module| (*module, reached(module))).collect();
        let circles = reached.iter().filter(|(module, from)| from.contains::<Module>(module));
        let circles: BTreeSet<Vec<&Module>> = circles
            .map(|(module, from)| {
                let other = reached.keys().filter(|reached| from.contains::<Module>(reached));
                other.filter(|item| reached[*item].contains::<Module>(module)).copied().collect()
            })
            .collect();
        let needing = |circle: &[&Module], module: &Module| {
            let of_circle = needed[module].iter().filter(|needed| circle.contains(needed));
            let needed: Vec<String> = of_circle.map(|item| item.join("::")).collect();
            format!("{} needs {}", module.join("::"), needed.join(", "))
        };
        let circles = circles.iter();
        circles.map(|circle| circle.iter().map(|item| needing(circle, item)).collect()).collect()
    }
}

/// `a/mod.rs` and `a.rs` are module `a`.
fn module_of(path: &Path) -> Module {
    let parts = path.with_extension("");
    let mut module: Module = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    module.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
    module
}

/// What `use` declarations name, each a path.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let statements = code.split(';');
    for statement in statements {
        let begin = statement.rfind("use ").filter(|begin| {
            let before = &statement[..*begin];
            before.is_empty() || before.ends_with(['\n', ' '])
        });
        let declaration = begin.map(|begin| &statement[begin + "use ".len()..]);
        for tree in declaration.into_iter().filter(|declaration| !declaration.contains(['(', '=']))
        {
            expand(&[], tree, &mut found);
        }
    }
    found
}

/// `a::{b, c::{d, self}}` is `a::b`, `a::c::d` and `a::c`.
fn expand(parents: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        let path = tree
            .split("::")
            .map(|part| part.trim().to_owned())
            .filter(|item| item != "self" || parents.is_empty());
        found.push(parents.iter().cloned().chain(path).collect());
        return;
    };
    let own = before.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
    let parents: Vec<String> = parents.iter().cloned().chain(own).collect();
    let inner = inner.strip_suffix('}').unwrap_or(inner);
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    expand(&parents, &inner[begin..at], found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths in expressions and types that begin with `crate::` or `super::`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !is_of_path(c));
    let paths = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
    paths
        .map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect()
}

#[test]
fn files_import_each_other_in_no_circle() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in crates() {
        let root = directory.join(&name).join("src");
        let files = sources(&name).into_iter();
        let files = files.map(|(path, text)| (path.strip_prefix(&root).unwrap().to_owned(), text));
        let circles = Modules::new(files).circles();
        assert!(circles.is_empty(), "circles in {name}: {circles:#?}");
    }
}

#[test]
fn a_circle_of_files_is_found() {
    let check = |files: &[(&str, &str)], expected: &[&str]| {
        let files = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
        let circles = Modules::new(files).circles();
        assert_eq!(circles.concat(), expected);
    };
    let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    let both = ["a needs b", "b needs a"];
    check(&[root, ("a.rs", "use crate::b::B;\n"), ("b.rs", "struct B;\n")], &[]);
    check(&[root, ("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::A;\n")], &both);
    check(
        &[root, ("a.rs", "fn f() -> super::b::B\n"), ("b.rs", "use crate::a::{self, A};\n")],
        &both,
    );
    // A module and what is in it are one; two of its parts are not.
    let parent = ("a/mod.rs", "mod b;\nmod c;\nuse b::B;\nuse c::C;\nstruct A;\n");
    let part = ("a/c.rs", "use super::{A, B};\n");
    check(&[parent, part, ("a/b.rs", "use super::A;\n")], &[]);
    let parts = ["a::b needs a::c", "a::c needs a::b"];
    check(&[parent, part, ("a/b.rs", "use super::{A, C};\n")], &parts);
    let root = ("lib.rs", "mod a;\n");
    let other = ("d.rs", "use crate::a::B as Other;\nstruct D;\n");
    let outside = ["a::b needs d", "d needs a::b"];
    check(&[root, parent, part, other, ("a/b.rs", "use crate::d::D;\n")], &outside);
}
