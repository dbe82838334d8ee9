SELECT
    auction, bidder, price, channel, url, bids.date_time, bids.extra,
    item_name, description, initial_bid, reserve, expires, seller, category,
    auctions.date_time AS opened, auctions.extra AS auction_extra
FROM auctions
JOIN bids ON auctions.id = bids.auction AND bids.date_time BETWEEN auctions.date_time AND auctions.expires
QUALIFY row_number() OVER (
    PARTITION BY auctions.id ORDER BY price DESC, bids.date_time, bidder DESC, channel DESC, url DESC, bids.extra DESC
) = 1
