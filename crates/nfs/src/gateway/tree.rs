//! The files of one export that a client has a handle of: each by its number, under the name it was last seen by.

use std::collections::HashMap;

use aegis_core::VolumePath;
use aegis_routes::files::attached::Identity;

pub(super) const ROOT: u64 = 1;
/// Past this many, those not used for the longest time are forgotten; their handles are stale then.
const MOST_NODES: usize = 1 << 18;
const DEEPEST: usize = 2048;

#[derive(Debug)]
pub(super) struct Tree {
    mount: VolumePath,
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Identity, u64>,
    next: u64,
    clock: u64,
    most: usize,
}

#[derive(Debug)]
struct Node {
    parent: u64,
    name: String,
    identity: Identity,
    directory: bool,
    used: u64,
}

/// A file that a handle stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) file: u64,
    pub(super) path: VolumePath,
    pub(super) identity: Identity,
    pub(super) directory: bool,
    pub(super) parent: u64,
}

impl Tree {
    pub(super) fn new(mount: VolumePath, root: Identity) -> Self {
        let node =
            Node { parent: ROOT, name: String::new(), identity: root, directory: true, used: u64::MAX };
        Self {
            mount,
            nodes: HashMap::from([(ROOT, node)]),
            numbers: HashMap::from([(root, ROOT)]),
            next: ROOT + 1,
            clock: 0,
            most: MOST_NODES,
        }
    }

    /// `None` when it was removed, or forgotten.
    pub(super) fn spot(&mut self, file: u64) -> Option<Spot> {
        let (path, way) = self.path(file)?;
        self.clock += 1;
        // What is needed to find it is in use as much as itself.
        for passed in way {
            if let Some(node) = self.nodes.get_mut(&passed) {
                node.used = self.clock;
            }
        }
        let node = self.nodes.get(&file)?;
        Some(Spot { file, path, identity: node.identity, directory: node.directory, parent: node.parent })
    }

    /// Where it is, and the numbers of all below the root that lead there.
    fn path(&self, file: u64) -> Option<(VolumePath, Vec<u64>)> {
        let (mut names, mut way) = (Vec::new(), Vec::new());
        let mut at = file;
        while at != ROOT {
            let node = self.nodes.get(&at)?;
            names.push(node.name.as_str());
            way.push(at);
            // Names that were seen at different times could form a circle.
            if names.len() > DEEPEST {
                return None;
            }
            at = node.parent;
        }
        let mut path = self.mount.as_str().to_owned();
        for name in names.into_iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        VolumePath::parse(&path).ok().map(|path| (path, way))
    }

    /// The number of a file that was seen in a directory.
    pub(super) fn enter(&mut self, parent: u64, name: &str, identity: Identity, directory: bool) -> u64 {
        self.clock += 1;
        let used = self.clock;
        if let Some(file) = self.numbers.get(&identity).copied() {
            if file != ROOT
                && let Some(node) = self.nodes.get_mut(&file)
            {
                node.used = used;
                if node.parent != parent || node.name != name {
                    node.parent = parent;
                    name.clone_into(&mut node.name);
                }
            }
            return file;
        }
        if self.nodes.len() >= self.most {
            self.forget_some();
        }
        let file = self.next;
        self.next += 1;
        self.nodes.insert(file, Node { parent, name: name.to_owned(), identity, directory, used });
        self.numbers.insert(identity, file);
        file
    }

    /// The file has been removed.
    pub(super) fn leave(&mut self, identity: &Identity) {
        if let Some(file) = self.numbers.get(identity).copied().filter(|file| *file != ROOT) {
            self.numbers.remove(identity);
            self.nodes.remove(&file);
        }
    }

    /// A directory takes all that is in it along, since that is found by its parent.
    fn forget_some(&mut self) {
        let mut ages: Vec<u64> = self.nodes.values().map(|node| node.used).collect();
        let middle = ages.len() / 8;
        let (_, oldest, _) = ages.select_nth_unstable(middle);
        let oldest = *oldest;
        self.nodes.retain(|_, node| node.used > oldest);
        let nodes = &self.nodes;
        self.numbers.retain(|_, file| nodes.contains_key(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u64) -> Identity {
        Identity { device: 1, number, born: (0, 0) }
    }

    fn tree() -> Tree {
        Tree::new(VolumePath::parse("/workspace").unwrap(), identity(1))
    }

    #[test]
    fn a_file_keeps_its_number_when_it_moves() {
        let mut tree = tree();
        let (a, b) = (tree.enter(ROOT, "a", identity(2), true), tree.enter(ROOT, "b", identity(3), true));
        let file = tree.enter(a, "x", identity(4), false);
        assert_eq!(tree.spot(file).unwrap().path.as_str(), "/workspace/a/x");
        assert_eq!(tree.enter(b, "y", identity(4), false), file);
        assert_eq!(tree.spot(file).unwrap().path.as_str(), "/workspace/b/y");
        tree.enter(a, "b", identity(3), true);
        assert_eq!(tree.spot(file).unwrap().path.as_str(), "/workspace/a/b/y");
        tree.leave(&identity(4));
        assert_eq!(tree.spot(file), None);
        assert_ne!(tree.enter(b, "y", identity(5), false), file);
        assert_eq!(tree.spot(ROOT).unwrap().path.as_str(), "/workspace");
    }

    #[test]
    fn circles_end_and_old_files_are_forgotten() {
        let mut tree = tree();
        let (a, b) = (tree.enter(ROOT, "a", identity(2), true), tree.enter(ROOT, "b", identity(3), true));
        tree.enter(b, "a", identity(2), true);
        tree.enter(a, "b", identity(3), true);
        assert_eq!(tree.spot(a), None);
        tree.most = 100;
        let files: Vec<u64> =
            (10..400).map(|n| tree.enter(ROOT, &n.to_string(), identity(n), false)).collect();
        assert!(tree.nodes.len() <= 100);
        assert!(tree.spot(files[0]).is_none());
        assert!(tree.spot(*files.last().unwrap()).is_some() && tree.spot(ROOT).is_some());
    }
}
