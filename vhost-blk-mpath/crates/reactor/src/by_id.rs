//! Things by their ids, which are small and dense.

use std::marker::PhantomData;
use std::ops::Index;

use mpath_core::{DiskId, FlowId, PathId};

/// An id that is an index.
pub(crate) trait Id: Copy {
    fn of(index: u16) -> Self;
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Id for $id {
            fn of(index: u16) -> Self {
                Self(index)
            }

            #[inline]
            fn index(self) -> usize {
                self.0.into()
            }
        }
    )*};
}

ids!(DiskId, FlowId, PathId);

/// An array of things, with gaps.
pub(crate) struct ById<I, T> {
    /// The last one is not a gap.
    things: Vec<Option<T>>,
    id: PhantomData<I>,
}

impl<I, T> Default for ById<I, T> {
    fn default() -> Self {
        Self { things: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> ById<I, T> {
    #[inline]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.things.get(id.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.things.get_mut(id.index())?.as_mut()
    }

    /// Adds a thing whose id is free.
    pub(crate) fn insert(&mut self, id: I, thing: T) {
        if self.things.len() <= id.index() {
            self.things.resize_with(id.index() + 1, || None);
        }
        let before = self.things[id.index()].replace(thing);
        assert!(before.is_none(), "an id names one thing");
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let removed = self.things.get_mut(id.index())?.take();
        while self.things.pop_if(|last| last.is_none()).is_some() {}
        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        (0..).zip(&self.things).filter_map(|(index, thing)| Some((I::of(index), thing.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        (0..).zip(&mut self.things).filter_map(|(index, thing)| Some((I::of(index), thing.as_mut()?)))
    }
}

impl<I: Id, T> Index<I> for ById<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        self.get(id).expect("the id names a thing")
    }
}

/// The paths in a bit set.
pub(crate) fn paths_of(mut set: u64) -> impl Iterator<Item = PathId> {
    std::iter::from_fn(move || {
        let path = PathId(set.trailing_zeros() as u16);
        (set != 0).then(|| set &= set - 1)?;
        Some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_hold_nothing() {
        let mut things = ById::default();
        for id in [3, 0, 5] {
            things.insert(PathId(id), id);
        }
        assert_eq!((things.get(PathId(1)), things.get(PathId(9)), things[PathId(3)]), (None, None, 3));
        assert_eq!(
            (things.remove(PathId(5)), things.remove(PathId(5)), things.remove(PathId(1))),
            (Some(5), None, None)
        );
        assert!(things.iter().eq([(PathId(0), &0), (PathId(3), &3)]));
        assert_eq!((things.remove(PathId(0)), things.is_empty()), (Some(0), false));
        assert_eq!((things.remove(PathId(3)), things.is_empty()), (Some(3), true));
    }

    #[test]
    fn a_set_names_its_paths() {
        assert!(paths_of(1 | 1 << 63 | 1 << 7).eq([0, 7, 63].map(PathId)) && paths_of(0).next().is_none());
    }
}
