"""What the demo model is taught to know by heart: countries with capitals and continents, days, months, units.

Common knowledge, written down by hand. Names are in English and in ASCII, continents as the United Nations sort them;
where a seat of government and a capital differ, the capital by constitution is meant, where the capital is disputed the
seat of government.
"""

# name | capital, by continent. A leading * marks a name that takes "the".
_TABLE = {
    "Africa": """Algeria|Algiers Angola|Luanda Benin|Porto-Novo Botswana|Gaborone Burkina_Faso|Ouagadougou
        Burundi|Gitega Cameroon|Yaounde Cape_Verde|Praia *Central_African_Republic|Bangui Chad|N'Djamena *Comoros|Moroni
        *Democratic_Republic_of_the_Congo|Kinshasa Djibouti|Djibouti Egypt|Cairo Equatorial_Guinea|Malabo Eritrea|Asmara
        Eswatini|Mbabane Ethiopia|Addis_Ababa Gabon|Libreville *Gambia|Banjul Ghana|Accra Guinea|Conakry
        Guinea-Bissau|Bissau Ivory_Coast|Yamoussoukro Kenya|Nairobi Lesotho|Maseru Liberia|Monrovia Libya|Tripoli
        Madagascar|Antananarivo Malawi|Lilongwe Mali|Bamako Mauritania|Nouakchott Mauritius|Port_Louis Morocco|Rabat
        Mozambique|Maputo Namibia|Windhoek Niger|Niamey Nigeria|Abuja *Republic_of_the_Congo|Brazzaville Rwanda|Kigali
        Sao_Tome_and_Principe|Sao_Tome Senegal|Dakar Seychelles|Victoria Sierra_Leone|Freetown Somalia|Mogadishu
        South_Africa|Pretoria South_Sudan|Juba Sudan|Khartoum Tanzania|Dodoma Togo|Lome Tunisia|Tunis Uganda|Kampala
        Zambia|Lusaka Zimbabwe|Harare""",
    "Asia": """Afghanistan|Kabul Armenia|Yerevan Azerbaijan|Baku Bahrain|Manama Bangladesh|Dhaka Bhutan|Thimphu
        Brunei|Bandar_Seri_Begawan Cambodia|Phnom_Penh China|Beijing Cyprus|Nicosia East_Timor|Dili Georgia|Tbilisi
        India|New_Delhi Indonesia|Jakarta Iran|Tehran Iraq|Baghdad Israel|Jerusalem Japan|Tokyo Jordan|Amman
        Kazakhstan|Astana Kuwait|Kuwait_City Kyrgyzstan|Bishkek Laos|Vientiane Lebanon|Beirut Malaysia|Kuala_Lumpur
        *Maldives|Male Mongolia|Ulaanbaatar Myanmar|Naypyidaw Nepal|Kathmandu North_Korea|Pyongyang Oman|Muscat
        Pakistan|Islamabad Palestine|Ramallah *Philippines|Manila Qatar|Doha Saudi_Arabia|Riyadh Singapore|Singapore
        South_Korea|Seoul Sri_Lanka|Sri_Jayawardenepura_Kotte Syria|Damascus Tajikistan|Dushanbe Thailand|Bangkok
        Turkey|Ankara Turkmenistan|Ashgabat *United_Arab_Emirates|Abu_Dhabi Uzbekistan|Tashkent Vietnam|Hanoi
        Yemen|Sanaa""",
    "Europe": """Albania|Tirana Andorra|Andorra_la_Vella Austria|Vienna Belarus|Minsk Belgium|Brussels
        Bosnia_and_Herzegovina|Sarajevo Bulgaria|Sofia Croatia|Zagreb Czechia|Prague Denmark|Copenhagen Estonia|Tallinn
        Finland|Helsinki France|Paris Germany|Berlin Greece|Athens Hungary|Budapest Iceland|Reykjavik Ireland|Dublin
        Italy|Rome Latvia|Riga Liechtenstein|Vaduz Lithuania|Vilnius Luxembourg|Luxembourg Malta|Valletta
        Moldova|Chisinau Monaco|Monaco Montenegro|Podgorica *Netherlands|Amsterdam North_Macedonia|Skopje Norway|Oslo
        Poland|Warsaw Portugal|Lisbon Romania|Bucharest Russia|Moscow San_Marino|San_Marino Serbia|Belgrade
        Slovakia|Bratislava Slovenia|Ljubljana Spain|Madrid Sweden|Stockholm Switzerland|Bern Ukraine|Kyiv
        *United_Kingdom|London Vatican_City|Vatican_City""",
    "North America": """Antigua_and_Barbuda|Saint_John's *Bahamas|Nassau Barbados|Bridgetown Belize|Belmopan
        Canada|Ottawa Costa_Rica|San_Jose Cuba|Havana Dominica|Roseau *Dominican_Republic|Santo_Domingo
        El_Salvador|San_Salvador Grenada|Saint_George's Guatemala|Guatemala_City Haiti|Port-au-Prince
        Honduras|Tegucigalpa Jamaica|Kingston Mexico|Mexico_City Nicaragua|Managua Panama|Panama_City
        Saint_Kitts_and_Nevis|Basseterre Saint_Lucia|Castries Saint_Vincent_and_the_Grenadines|Kingstown
        Trinidad_and_Tobago|Port_of_Spain *United_States|Washington""",
    "Oceania": """Australia|Canberra Fiji|Suva Kiribati|South_Tarawa *Marshall_Islands|Majuro Micronesia|Palikir
        Nauru|Yaren New_Zealand|Wellington Palau|Ngerulmud Papua_New_Guinea|Port_Moresby Samoa|Apia
        *Solomon_Islands|Honiara Tonga|Nuku'alofa Tuvalu|Funafuti Vanuatu|Port_Vila""",
    "South America": """Argentina|Buenos_Aires Bolivia|Sucre Brazil|Brasilia Chile|Santiago Colombia|Bogota
        Ecuador|Quito Guyana|Georgetown Paraguay|Asuncion Peru|Lima Suriname|Paramaribo Uruguay|Montevideo
        Venezuela|Caracas""",
}  # fmt: skip


class Country:
    def __init__(self, name, capital, continent):
        self.takes_the = name.startswith("*")
        self.name = name.lstrip("*").replace("_", " ")
        self.capital = capital.replace("_", " ")
        self.continent = continent

    @property
    def full(self):
        """As it stands inside a sentence."""
        return "the " + self.name if self.takes_the else self.name


COUNTRIES = [Country(*entry.split("|"), continent) for continent, text in _TABLE.items() for entry in text.split()]
BY_NAME = {c.name: c for c in COUNTRIES}
CONTINENTS = list(_TABLE)
ADJECTIVES = {"Africa": "African", "Asia": "Asian", "Europe": "European", "North America": "North American",
              "Oceania": "Oceanian", "South America": "South American"}  # fmt: skip

# Other names that people type, in questions only.
ALIASES = {
    "United States": ["the USA", "the US", "the United States of America"],
    "United Kingdom": ["the UK", "Great Britain"],
    "Democratic Republic of the Congo": ["DR Congo"],
    "United Arab Emirates": ["the UAE"],
    "Czechia": ["the Czech Republic"],
    "Ivory Coast": ["Cote d'Ivoire"],
    "East Timor": ["Timor-Leste"],
    "Cape Verde": ["Cabo Verde"],
    "Turkey": ["Turkiye"],
    "Vatican City": ["the Vatican"],
}

# The countries that a list names, in its order.
MAJOR = {
    "Africa": ["Egypt", "Nigeria", "South Africa", "Kenya", "Ethiopia", "Morocco"],
    "Asia": ["China", "India", "Japan", "Indonesia", "South Korea", "Thailand"],
    "Europe": ["Germany", "France", "Italy", "Spain", "Poland", "Sweden"],
    "North America": ["Canada", "Mexico", "Cuba", "Guatemala", "Panama", "Jamaica"],
    "Oceania": ["Australia", "New Zealand", "Fiji", "Samoa", "Tonga", "Vanuatu"],
    "South America": ["Brazil", "Argentina", "Chile", "Peru", "Colombia", "Ecuador"],
}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]  # fmt: skip
DAYS_OF_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
            "twelfth"]  # fmt: skip

# one of the first is `factor` of the second; singular, plural
UNITS = [
    (("kilometre", "kilometres"), 1000, ("metre", "metres")),
    (("metre", "metres"), 100, ("centimetre", "centimetres")),
    (("centimetre", "centimetres"), 10, ("millimetre", "millimetres")),
    (("kilogram", "kilograms"), 1000, ("gram", "grams")),
    (("tonne", "tonnes"), 1000, ("kilogram", "kilograms")),
    (("litre", "litres"), 1000, ("millilitre", "millilitres")),
    (("hour", "hours"), 60, ("minute", "minutes")),
    (("minute", "minutes"), 60, ("second", "seconds")),
    (("day", "days"), 24, ("hour", "hours")),
    (("week", "weeks"), 7, ("day", "days")),
    (("year", "years"), 12, ("month", "months")),
    (("dozen", "dozen"), 12, ("piece", "pieces")),
]

# Beside the capitals, places whose weather is asked for.
CITIES = """Barcelona Milan Munich Hamburg Frankfurt Lyon Marseille Naples Venice Florence Seville Porto Krakow Geneva
    Zurich Basel Antwerp Rotterdam Glasgow Edinburgh Manchester Liverpool Birmingham Cork Gothenburg Bergen Istanbul
    Izmir Odesa Chicago Boston Seattle Denver Dallas Houston Miami Atlanta Toronto Montreal Vancouver Calgary Detroit
    Phoenix Mumbai Kolkata Chennai Karachi Lahore Osaka Kyoto Sapporo Nagoya Shanghai Shenzhen Wuhan Busan Sydney
    Melbourne Brisbane Perth Auckland Lagos Casablanca Alexandria Durban Mombasa Recife Salvador Rosario Cusco Medellin
    Cali Guayaquil Tijuana Monterrey New_York Los_Angeles San_Francisco Las_Vegas Cape_Town Rio_de_Janeiro Sao_Paulo
    Hong_Kong Tel_Aviv Saint_Petersburg""".split()
CITIES = [c.replace("_", " ") for c in CITIES]
HELD_CITIES = ["Turin", "Valencia", "Leipzig", "Bordeaux", "Adelaide", "Portland", "Fukuoka", "Kano", "Cordoba", "Tampere",
               "Bristol", "Salzburg", "San Diego", "Da Nang"]  # fmt: skip
