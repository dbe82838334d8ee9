SELECT
    auction, bidder, price, channel, url, bids.date_time, bids.extra,
    item_name, description, initial_bid, reserve, expires, seller, category,
    auctions.date_time AS opened, auctions.extra AS auction_extra
FROM bids
JOIN auctions ON bids.auction = auctions.id AND auctions.date_time <= bids.date_time
WHERE category = 10
