SELECT persons.name, persons.city, persons.state, auctions.id
FROM auctions
JOIN persons ON auctions.seller = persons.id AND persons.date_time <= auctions.date_time
WHERE auctions.category = 10 AND persons.state IN ('OR', 'ID', 'CA')
