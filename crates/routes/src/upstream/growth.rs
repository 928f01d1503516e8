//! Schemas whose work grows with the depth of a value. A part that names the next one twice for the same member
//! (`allOf` with two `items`, each the same reference) doubles the work with every level, and a value has a hundred
//! levels for the price of two hundred bytes.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::schema::{IN_PLACE, IN_PLACE_LISTS, IN_PLACE_MEMBERS, resolved};

/// Deeper values are not read at all.
const DEEPEST_VALUE: usize = 128;
/// Schemas applied on the way from the top of a value to its deepest place.
const MOST_BELOW: u64 = 2_000_000;
/// Steps until a schema is understood; more are needed only by one that was made for it.
const MOST_STEPS: usize = 400_000;

const MEMBERS: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "propertyNames"];
const ITEMS: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];

/// Schemas that apply to one member or item, by number, with how often each does.
type Below = Vec<(usize, u64)>;

/// What applies where a schema does.
struct Node {
    /// Schemas at this very place, itself among them.
    here: u64,
    /// One for each kind of place below: a value has many of them, and its deepest lies in one.
    below: Vec<Below>,
}

/// Refuses a schema whose work can explode.
pub(super) fn check(root: &Value) -> Result<(), String> {
    let mut graph = Graph { root, numbers: HashMap::new(), found: Vec::new(), steps: 0 };
    graph.number(root);
    let mut nodes = Vec::new();
    while let Some(schema) = graph.found.get(nodes.len()).copied() {
        let node = graph.node(schema)?;
        nodes.push(node);
    }
    let mut work: Vec<u64> = nodes.iter().map(|node| node.here).collect();
    for _ in 0..DEEPEST_VALUE {
        let deeper: Vec<u64> = nodes
            .iter()
            .map(|node| {
                let one = |below: &Below| -> u64 {
                    let each = below.iter().map(|(child, times)| work[*child].saturating_mul(*times));
                    each.fold(0, u64::saturating_add)
                };
                node.here.saturating_add(node.below.iter().map(one).max().unwrap_or(0))
            })
            .collect();
        if deeper[0] > MOST_BELOW {
            return Err("with its references the work doubles with every level of a value".into());
        }
        if deeper == work {
            break;
        }
        work = deeper;
    }
    Ok(())
}

struct Graph<'a> {
    root: &'a Value,
    numbers: HashMap<*const Value, usize>,
    found: Vec<&'a Value>,
    steps: usize,
}

impl<'a> Graph<'a> {
    fn number(&mut self, schema: &'a Value) -> usize {
        let found = &mut self.found;
        *self.numbers.entry(schema).or_insert_with(|| {
            found.push(schema);
            found.len() - 1
        })
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > MOST_STEPS { Err("its parts refer to each other too often".into()) } else { Ok(()) }
    }

    fn node(&mut self, schema: &'a Value) -> Result<Node, String> {
        let mut here = Here::default();
        self.collect(schema, &mut here)?;
        let total = here.total;
        Ok(Node { here: total, below: self.below(&here)? })
    }

    /// Everything that applies to the same place. That this ends, and is not too much, has been looked at before.
    fn collect(&mut self, schema: &'a Value, here: &mut Here<'a>) -> Result<(), String> {
        self.step()?;
        here.total += 1;
        let Value::Object(members) = schema else { return Ok(()) };
        let known = here.numbers.len();
        let number = *here.numbers.entry(schema).or_insert(known);
        match here.schemas.get_mut(number) {
            Some((_, times)) => *times += 1,
            None => here.schemas.push((members, 1)),
        }
        for keyword in IN_PLACE {
            match members.get(keyword) {
                Some(Value::String(reference)) if keyword.starts_with('$') => {
                    self.collect(resolved(self.root, reference)?, here)?;
                }
                Some(part) => self.collect(part, here)?,
                None => {}
            }
        }
        let lists = IN_PLACE_LISTS.into_iter().filter_map(|keyword| members.get(keyword)?.as_array());
        for part in lists.flatten() {
            self.collect(part, here)?;
        }
        let named = IN_PLACE_MEMBERS.into_iter().filter_map(|keyword| members.get(keyword)?.as_object());
        for part in named.flat_map(Map::values) {
            self.collect(part, here)?;
        }
        Ok(())
    }

    fn below(&mut self, here: &Here<'a>) -> Result<Vec<Below>, String> {
        let mut all = Vec::new();
        let named = here.schemas.iter().filter_map(|(members, _)| members.get("properties")?.as_object());
        let mut names: Vec<&str> = named.flat_map(|members| members.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().map(Some).chain([None]) {
            let mut below = Below::new();
            for &(members, times) in &here.schemas {
                self.of_member(members, name, times, &mut below)?;
            }
            all.push(below);
        }
        let places = here.schemas.iter().map(|(members, _)| tuple(members).len()).max().unwrap_or(0);
        for place in 0..=places {
            let mut below = Below::new();
            for &(members, times) in &here.schemas {
                let fixed = tuple(members).get(place);
                let others = ITEMS.iter().filter_map(|keyword| members.get(*keyword));
                for part in others.filter(|part| !part.is_array()).chain(fixed) {
                    self.step()?;
                    below.push((self.number(part), times));
                }
            }
            all.push(below);
        }
        all.retain(|below| !below.is_empty());
        Ok(all)
    }

    /// What one schema says of a member of this name, or of one that no schema names.
    fn of_member(
        &mut self,
        members: &'a Map<String, Value>,
        name: Option<&str>,
        times: u64,
        below: &mut Below,
    ) -> Result<(), String> {
        self.step()?;
        let part = name.and_then(|name| members.get("properties")?.get(name));
        let patterns = members.get("patternProperties").and_then(Value::as_object);
        let others = MEMBERS.iter().filter_map(|keyword| {
            // Of a member that has a schema of its own, these say nothing.
            members.get(*keyword).filter(|_| part.is_none() || *keyword == "propertyNames")
        });
        for part in others.chain(part).chain(patterns.into_iter().flat_map(Map::values)) {
            self.step()?;
            below.push((self.number(part), times));
        }
        Ok(())
    }
}

/// The items that have a schema for their place.
fn tuple(members: &Map<String, Value>) -> &[Value] {
    let listed = |keyword| members.get(keyword).and_then(Value::as_array).map(Vec::as_slice);
    listed("prefixItems").or_else(|| listed("items")).unwrap_or_default()
}

/// The schemas at one place, each with how often it applies.
#[derive(Default)]
struct Here<'a> {
    numbers: HashMap<*const Value, usize>,
    schemas: Vec<(&'a Map<String, Value>, u64)>,
    total: u64,
}
