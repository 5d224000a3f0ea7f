use proptest::prelude::*;

use super::*;

fn interface(name: &str, index: u32, up: bool, addresses: &[&str]) -> Interface {
    let all_addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Interface { name: name.into(), index, up, all_addresses, ..Interface::default() }
}

fn endpoint(id: u8, address: &str, dev: Option<&str>) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        id,
        dev: dev.map(Into::into),
        port: None,
        subflow: true,
        signal: false,
        backup: false,
        fullmesh: false,
        laminar: false,
        implicit: false,
    }
}

fn link(name: &str, index: u32, up: bool) -> LinkEvent {
    LinkEvent::Link { index, name: name.into(), up }
}

/// A host whose links, addresses and endpoints change, with a follower whose actions are carried out on it.
struct World {
    follower: Follower,
    interfaces: Vec<Interface>,
    endpoints: Vec<Endpoint>,
    now: Instant,
}

impl World {
    /// Two links, and an endpoint on each: one with a device, one without.
    fn new(devs: &[&str]) -> Self {
        let devs: Vec<String> = devs.iter().map(ToString::to_string).collect();
        let mut world = Self {
            follower: Follower::new(&devs),
            interfaces: vec![
                interface("a0", 3, true, &["10.1.0.1"]),
                interface("a1", 5, true, &["10.1.1.1", "fd01::1"]),
            ],
            endpoints: vec![endpoint(1, "10.1.0.1", Some("a0")), endpoint(2, "10.1.1.1", None)],
            now: Instant::now(),
        };
        assert_eq!(world.told(LinkEvent::Missed), "");
        world
    }

    fn set(&mut self, name: &str, up: bool) -> &mut Interface {
        let interface = self.interfaces.iter_mut().find(|interface| interface.name == name).unwrap();
        interface.up = up;
        interface
    }

    /// Sets the carrier of a link and passes the event to the follower. Returns the actions carried out.
    fn carrier(&mut self, name: &str, up: bool) -> String {
        let index = self.set(name, up).index;
        self.told(link(name, index, up))
    }

    /// Passes an event to the follower. Returns the actions carried out.
    fn told(&mut self, event: LinkEvent) -> String {
        let need = self.follower.event(event, self.now);
        self.catch_up(need)
    }

    fn later(&mut self, passed: Duration) -> String {
        self.now += passed;
        self.catch_up(Reread::Interfaces)
    }

    fn catch_up(&mut self, need: Reread) -> String {
        if need == Reread::Nothing {
            return "nothing".into();
        }
        if need == Reread::Interfaces {
            self.follower.look(&self.interfaces, self.now);
        }
        let actions = self.follower.actions(&self.endpoints, self.now);
        actions.iter().map(|action| self.done(action)).collect::<Vec<_>>().join(", ")
    }

    /// Carries out an action as the kernel would. Returns the action as text.
    fn done(&mut self, action: &Action) -> String {
        match action {
            Action::Remove(held) => {
                self.follower.hold(held);
                let before = self.endpoints.len();
                self.endpoints.retain(|endpoint| endpoint.id != held.endpoint.id);
                assert_eq!(self.endpoints.len(), before - 1);
                format!("- {}", held.endpoint.id)
            }
            Action::Add(held) => {
                self.follower.forget(held);
                let id = self.added(held);
                format!("+ {id} {}", held.endpoint)
            }
            Action::Abandon(held) => {
                self.follower.forget(held);
                format!("! {}", held.endpoint.address)
            }
        }
    }

    fn added(&mut self, held: &DeletedEndpoint) -> u8 {
        let same = self.endpoints.iter().position(|endpoint| endpoint.address == held.endpoint.address);
        let replaced = same.map(|same| self.endpoints.remove(same));
        assert!(replaced.as_ref().is_none_or(|replaced| replaced.implicit && held.any_id));
        let free = (1..=u8::MAX).find(|id| self.endpoints.iter().all(|endpoint| endpoint.id != *id));
        let chosen = replaced.map_or(free.unwrap(), |replaced| replaced.id);
        let id = if held.any_id { chosen } else { held.endpoint.id };
        assert!(self.endpoints.iter().all(|endpoint| endpoint.id != id));
        self.endpoints.push(Endpoint { id, ..held.endpoint.clone() });
        id
    }
}

#[test]
fn endpoints_go_with_their_link_and_come_back_as_they_were() {
    let mut world = World::new(&[]);
    world.endpoints[0].backup = true;
    assert_eq!(world.carrier("a0", false), "- 1");
    assert_eq!(world.carrier("a0", true), "+ 1 10.1.0.1 dev a0 subflow backup");
    assert_eq!(world.carrier("a1", false), "- 2");
    assert_eq!(world.carrier("a1", true), "+ 2 10.1.1.1 subflow");
    assert_eq!(world.told(link("a1", 5, true)), "nothing");
}

#[test]
fn links_that_are_down_at_the_start_count_as_lost() {
    let mut world = World::new(&[]);
    world.follower = Follower::new(&[]);
    world.set("a1", false);
    assert_eq!(world.told(LinkEvent::Missed), "- 2");
    assert_eq!(world.carrier("a1", true), "+ 2 10.1.1.1 subflow");
}

#[test]
fn a_carrier_that_was_lost_beside_an_overrun_is_found() {
    let mut world = World::new(&[]);
    world.set("a0", false);
    assert_eq!(world.told(LinkEvent::Missed), "- 1");
    world.set("a0", true);
    assert_eq!(world.told(LinkEvent::Missed), "+ 1 10.1.0.1 dev a0 subflow");
}

#[test]
fn only_the_links_asked_for() {
    let mut world = World::new(&["a1"]);
    assert_eq!(world.carrier("a0", false), "");
    assert_eq!(world.carrier("a1", false), "- 2");
}

#[test]
fn all_kinds_go_but_those_that_the_kernel_made() {
    let mut world = World::new(&[]);
    world.endpoints.push(Endpoint { implicit: true, ..endpoint(3, "10.1.1.1", None) });
    world.endpoints[1] = Endpoint { signal: true, subflow: false, port: Some(4420), ..endpoint(2, "fd01::1", None) };
    assert_eq!(world.carrier("a1", false), "- 2");
}

/// A subflow cannot begin at an address that is missing or tentative.
#[test]
fn an_endpoint_waits_for_its_address() {
    let mut world = World::new(&[]);
    world.endpoints[1] = endpoint(2, "fd01::1", None);
    let addresses = mem::take(&mut world.set("a1", false).all_addresses);
    // The kernel tells of the address first.
    assert_eq!(world.told(LinkEvent::Addresses), "- 2");
    assert_eq!(world.carrier("a1", true), "");
    assert_eq!(world.follower.wait(world.now), Some(RETRY));
    world.set("a1", true).tentative.clone_from(&addresses);
    world.set("a1", true).all_addresses = addresses;
    assert_eq!(world.told(LinkEvent::Addresses), "");
    world.set("a1", true).tentative.clear();
    assert_eq!(world.told(LinkEvent::Addresses), "+ 2 fd01::1 subflow");
    assert_eq!(world.follower.wait(world.now), None);
}

#[test]
fn an_address_is_announced_after_hosts_had_their_turn() {
    let mut world = World::new(&[]);
    world.endpoints[1].signal = true;
    assert_eq!(world.carrier("a1", false), "- 2");
    assert_eq!(world.carrier("a1", true), "");
    assert_eq!(world.follower.wait(world.now), Some(ANNOUNCED_AFTER));
    assert_eq!(world.later(ANNOUNCED_AFTER / 2), "");
    assert_eq!(world.follower.wait(world.now), Some(ANNOUNCED_AFTER / 2));
    assert_eq!(world.later(ANNOUNCED_AFTER / 2), "+ 2 10.1.1.1 signal subflow");
    // A link that is lost again meanwhile begins anew.
    world.carrier("a1", false);
    world.carrier("a1", true);
    world.now += ANNOUNCED_AFTER / 2;
    world.carrier("a1", false);
    world.carrier("a1", true);
    assert_eq!(world.later(ANNOUNCED_AFTER / 2), "");
}

#[test]
fn what_somebody_else_has_added_is_left_alone() {
    let mut world = World::new(&[]);
    world.carrier("a0", false);
    world.endpoints.push(Endpoint { fullmesh: true, ..endpoint(7, "10.1.0.1", None) });
    // The link is still down, so this endpoint is deleted too. It is now the one to add again.
    assert_eq!(world.told(LinkEvent::Missed), "- 7");
    world.endpoints.push(endpoint(8, "10.1.0.1", None));
    assert_eq!(world.carrier("a0", true), "! 10.1.0.1");
    assert_eq!(world.told(LinkEvent::Missed), "");
}

/// The kernel does not give a chosen id to an address with an implicit endpoint, and gives no id twice.
#[test]
fn an_id_that_cannot_be_had() {
    let mut world = World::new(&[]);
    world.carrier("a0", false);
    world.endpoints.push(Endpoint { implicit: true, ..endpoint(4, "10.1.0.1", None) });
    assert_eq!(world.carrier("a0", true), "+ 4 10.1.0.1 dev a0 subflow");
    world.carrier("a0", false);
    world.endpoints.push(endpoint(4, "10.1.1.2", None));
    assert_eq!(world.carrier("a0", true), "+ 1 10.1.0.1 dev a0 subflow");
}

#[test]
fn a_link_may_get_another_name_or_index() {
    let mut world = World::new(&[]);
    world.carrier("a0", false);
    world.set("a0", false).name = "wan".into();
    world.told(link("wan", 3, false));
    assert_eq!(world.carrier("wan", true), "+ 1 10.1.0.1 dev wan subflow");
    // The device of a link that is gone is shown by its number.
    world.interfaces.remove(0);
    world.endpoints.retain(|endpoint| endpoint.id != 1);
    world.endpoints.push(endpoint(1, "10.1.0.1", Some("if3")));
    assert_eq!(world.told(LinkEvent::Deleted { index: 3 }), "- 1");
    world.interfaces.push(interface("wan", 9, true, &["10.1.0.1"]));
    assert_eq!(world.told(link("wan", 9, true)), "+ 1 10.1.0.1 dev wan subflow");
}

/// Nobody knows whether the attempt to delete the endpoint has succeeded.
#[test]
fn what_may_have_been_removed_is_remembered() {
    let mut world = World::new(&[]);
    world.set("a0", false);
    assert_eq!(world.follower.event(link("a0", 3, false), world.now), Reread::Endpoints);
    let actions = world.follower.actions(&world.endpoints, world.now);
    let [Action::Remove(held)] = &actions[..] else { panic!("{actions:?}") };
    world.follower.hold(held);
    // If the attempt has failed, it is made again. If it has succeeded, the endpoint is there to be added.
    assert_eq!(world.follower.actions(&world.endpoints, world.now), actions);
    assert_eq!(world.follower.at_the_end(&world.endpoints), []);
    assert_eq!(world.follower.at_the_end(&world.endpoints[1..]), std::slice::from_ref(held));
}

/// Endpoints that are added again and again on a dead link.
#[test]
fn nothing_piles_up() {
    let mut world = World::new(&[]);
    world.carrier("a0", false);
    for number in 0..=255 {
        let address = format!("10.2.0.{number}");
        world.set("a0", false).all_addresses = vec![address.parse().unwrap()];
        world.endpoints.push(endpoint(3, &address, Some("a0")));
        world.told(LinkEvent::Addresses);
        world.endpoints.retain(|endpoint| endpoint.id != 3);
    }
    assert_eq!(world.follower.held.len(), HELD_MAX);
    assert!(world.follower.addresses.len() <= HELD_MAX + 4);
}

proptest! {
    /// Two links change in any way. Any event about that may be lost, as long as `Missed` comes later.
    #[test]
    fn nothing_is_on_a_dead_link_and_nothing_is_lost(
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()), 0..40)
    ) {
        let mut world = World::new(&[]);
        world.endpoints[1].signal = true;
        let mut first = world.endpoints.clone();
        let addresses: Vec<_> = world.interfaces.iter().map(|interface| interface.all_addresses.clone()).collect();
        for (which, up, with_address, told) in steps {
            let name = if which { "a1" } else { "a0" };
            let addresses = addresses[usize::from(which)].clone();
            world.set(name, up).all_addresses = if up || with_address { addresses } else { Vec::new() };
            if !told {
                continue;
            }
            world.carrier(name, up);
            world.told(LinkEvent::Missed);
            for interface in world.interfaces.iter().filter(|interface| !interface.up) {
                let of_it = |endpoint: &Endpoint| endpoint.address == addresses_of(&interface.name);
                prop_assert!(!world.endpoints.iter().any(of_it));
            }
            // If the program ended now, it would add exactly the endpoints that are missing.
            let mut at_the_end = world.endpoints.clone();
            at_the_end.extend(world.follower.at_the_end(&world.endpoints).into_iter().map(|held| held.endpoint));
            at_the_end.sort_by_key(|endpoint| endpoint.id);
            prop_assert_eq!(&at_the_end, &first);
        }
        for (name, addresses) in ["a0", "a1"].into_iter().zip(addresses) {
            world.set(name, true).all_addresses = addresses;
        }
        world.told(LinkEvent::Missed);
        world.later(ANNOUNCED_AFTER);
        world.endpoints.sort_by_key(|endpoint| endpoint.id);
        first.sort_by_key(|endpoint| endpoint.id);
        prop_assert_eq!(world.endpoints, first);
        prop_assert_eq!(world.follower.wait(world.now), None);
    }
}

fn addresses_of(name: &str) -> IpAddr {
    if name == "a0" { [10, 1, 0, 1].into() } else { [10, 1, 1, 1].into() }
}
