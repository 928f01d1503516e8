//! The Merkle tree of RFC 6962, held as the roots of its complete subtrees: all that is needed to grow it.

use super::digest::Digest;

/// The right edge of a tree: one root per set bit of its size, the largest subtree first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    roots: Vec<Digest>,
}

impl Frontier {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn push(&mut self, leaf: Digest) {
        let mut node = leaf;
        // Each trailing one of the old size is a complete subtree as large as what we carry.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.roots.pop() {
                node = Digest::of_node(&left, &node);
            }
        }
        self.roots.push(node);
        self.size += 1;
    }

    pub fn root(&self) -> Digest {
        let mut roots = self.roots.iter().rev();
        let Some(last) = roots.next() else { return Digest::of(b"") };
        roots.fold(*last, |right, left| Digest::of_node(left, &right))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.roots.iter().flat_map(|root| *root.as_bytes()).collect()
    }

    /// None when the bytes can't be the frontier of a tree of that size. Whether they are the right one, only a
    /// signed root can tell.
    pub(super) fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (roots, rest) = bytes.as_chunks::<32>();
        let fits = rest.is_empty() && roots.len() == size.count_ones() as usize;
        fits.then(|| Self { size, roots: roots.iter().map(|root| Digest::from(*root)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6962, 2.1, word for word.
    fn tree_hash(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => Digest::of(b""),
            [leaf] => *leaf,
            _ => {
                let split = leaves.len().next_power_of_two() / 2;
                Digest::of_node(&tree_hash(&leaves[..split]), &tree_hash(&leaves[split..]))
            }
        }
    }

    fn leaf(data: &[u8]) -> Digest {
        Digest::of(&[&[0], data].concat())
    }

    /// The eight inputs and roots that Certificate Transparency implementations share.
    #[test]
    fn certificate_transparency_vectors() {
        let inputs: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut frontier = Frontier::default();
        assert_eq!(
            frontier.root().to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for (input, root) in inputs.into_iter().zip(roots) {
            frontier.push(leaf(input));
            assert_eq!(frontier.root().to_string(), root);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(leaves in prop::collection::vec(any::<[u8; 32]>(), 0..200), cut in 0_usize..200) {
            let leaves: Vec<Digest> = leaves.into_iter().map(Digest::from).collect();
            let mut frontier = Frontier::default();
            for (index, leaf) in leaves.iter().enumerate() {
                if index == cut {
                    frontier = Frontier::from_bytes(frontier.size(), &frontier.to_bytes()).unwrap();
                }
                frontier.push(*leaf);
            }
            prop_assert_eq!(frontier.size(), leaves.len() as u64);
            prop_assert_eq!(frontier.root(), tree_hash(&leaves));
        }

        #[test]
        fn a_frontier_of_another_size_does_not_parse(size in 0_u64..1000, length in 0_usize..400) {
            let fits = length == size.count_ones() as usize * 32;
            prop_assert_eq!(Frontier::from_bytes(size, &vec![0; length]).is_some(), fits);
        }
    }
}
