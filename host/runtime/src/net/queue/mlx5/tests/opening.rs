//! Which card is opened, by what it is asked for, and what its packets say.

use super::*;

/// The first that can be used of an order, and one that is asked for whatever the order is.
#[test]
fn cards_are_opened_in_the_order_that_is_given() {
    let Some(stand_in) = stand_in("cards_are_opened_in_the_order_that_is_given") else { return };
    let opened = |wish, order: &[&str]| {
        let order = |names: &[String]| {
            let place = |wanted: &&str| names.iter().position(|name| name == wanted).unwrap();
            order.iter().map(place).collect()
        };
        Mlx5Card::new(0, Some(&stand_in.folder), wish, &order, None, PacketClass::default())
            .map(|card| card.who())
    };
    assert_eq!(opened(None, &["mlx5_5", "mlx5_1"]).unwrap(), "mlx5_5, port 1");
    // No mlx5, a port that is down, no GID: the next one.
    assert_eq!(opened(None, &["qedr0", "mlx5_0", "mlx5_6", "mlx5_2", "mlx5_1"]).unwrap(), "mlx5_2, port 1");
    assert_eq!(opened(Some("mlx5_1"), &["mlx5_5", "mlx5_1"]).unwrap(), "mlx5_1, port 2");
    let why = opened(None, &["mlx5_6", "mlx5_0"]).unwrap_err().message;
    assert!(why.find("mlx5_6: port 1 has no GID") < why.find("mlx5_0: port 1 is not active"), "{why}");
}

#[test]
fn wishes_name_a_card_a_port_and_a_gid() {
    for text in ["mlx5_0", " mlx5_0:1", "mlx5_0:1:3"] {
        Wish::parse(text).unwrap();
    }
    for text in ["", ":1", "mlx5_0:0", "mlx5_0:x", "mlx5_0:1:256", "mlx5_0:1:3:4"] {
        let error = Wish::parse(text).unwrap_err().message;
        assert!(error.contains(&format!("RUSHMEM_CARD={text}")), "{error}");
    }
}

#[test]
fn the_first_card_that_kernels_could_write_is_opened() {
    let Some(stand_in) = stand_in("the_first_card_that_kernels_could_write_is_opened") else { return };
    let card = stand_in.card(0, None).unwrap();
    // Neither the card that is none of these, nor the port that is down; and its routed address.
    assert_eq!(card.about(), "kernels write requests to mlx5_1, port 2 (Ethernet)");
    assert_eq!((card.device.address.v2, card.device.address.gid[0]), (true, 0x20));
    let card = stand_in.card(0, Some("mlx5_2")).unwrap();
    assert_eq!(card.about(), "kernels write requests to mlx5_2, port 1 (InfiniBand)");
    assert_eq!(stand_in.told(), "");
}

/// What rushmem-info shows, and what a log says where nobody asks for a card.
#[test]
fn cards_are_listed_by_the_libraries_that_are_named() {
    let Some(stand_in) = stand_in("cards_are_listed_by_the_libraries_that_are_named") else { return };
    let listed = verbs::here(Some(&stand_in.folder)).unwrap();
    let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
    assert_eq!(listed.len(), 8, "{listed:?}");
    assert!(listed[0].starts_with("qedr0") && !listed[0].contains("mlx5"), "{listed:?}");
    assert!(listed[1].starts_with("mlx5_0 (mlx5)"), "{listed:?}");
    let why = verbs::why_not(Some(&stand_in.folder));
    assert!(why.contains("mlx5_0 is here, and RUSHMEM_TRANSPORT=direct,queue,ucx asks for it"), "{why}");
}

#[test]
fn cards_that_cannot_be_opened_say_why() {
    let Some(stand_in) = stand_in("cards_that_cannot_be_opened_say_why") else { return };
    for (wish, why) in [
        ("qedr0", "qedr0 is no mlx5 card"),
        ("mlx5_0", "is its cable in, and its interface up? `ip link`, `ibstat`), there is no port 2"),
        ("mlx5_1:1", "mlx5_1: port 1 is not active"),
        ("mlx5_1:3", "mlx5_1: there is no port 3"),
        ("mlx5_1:2:5", "port 2 has no GID that is set"),
        ("mlx5_4", "opening it with DEVX failed: Operation not supported"),
        ("mlx5_6", "mlx5_6: port 1 has no GID that is set"),
        ("mlx5_9", "mlx5_1 is not asked for"),
    ] {
        let error = stand_in.card(0, Some(wish)).err().unwrap().message;
        assert!(error.contains(why) && error.contains("rushmem-info lists the cards"), "{wish}: {error}");
    }
    let error =
        Mlx5Card::new(0, Some(FilePath::new("/nonexistent")), None, &as_listed, None, PacketClass::default())
            .err()
            .unwrap()
            .message;
    assert!(error.contains("no libibverbs.so.1") && error.contains("RUSHMEM_VERBS"), "{error}");
}

/// As RUSHMEM_CARD_TC and RUSHMEM_CARD_SL have them, where each kind of link has a place for them.
#[test]
fn packets_have_the_classes_that_are_asked_for() {
    let Some(stand_in) = stand_in("packets_have_the_classes_that_are_asked_for") else { return };
    let (traffic, level) = (106, 5);
    for (name, class, expected) in [
        ("mlx5_1", PacketClass::default(), [0; 4]),
        ("mlx5_1", PacketClass { traffic, level }, [106, 26, 5, 0]),
        ("mlx5_5", PacketClass { traffic, level }, [106, 0, 5, 0]),
        ("mlx5_2", PacketClass { traffic, level: 15 }, [0, 0, 0, 15]),
    ] {
        drop(connected_by(&stand_in, name, (1, 64), class));
        assert_eq!(stand_in.classes(), expected, "{name}");
        assert_eq!((stand_in.objects(), stand_in.told()), (0, String::new()), "{name}");
    }
    let class = PacketClass { traffic: 0, level: 8 };
    let card = Mlx5Card::new(0, Some(&stand_in.folder), Some("mlx5_1"), &as_listed, None, class);
    let error = card.err().unwrap().message;
    assert!(error.contains("RUSHMEM_CARD_SL=8: mlx5_1, port 2 is Ethernet"), "{error}");
}
