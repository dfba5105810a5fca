/* penstock {"view":[[["public","trades"]],"id bigint",["id"],40],"written":["SELECT id FROM trades"]} */
CREATE VIEW `public`.`totals` (`id`) AS
SELECT `id` /* all of it */ FROM `penstock`.`public`.`trades`